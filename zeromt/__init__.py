"""zeromt from Python: the topmost layer, which calls what the command line calls, and which nothing imports.

The packages below it have general names (`configs`, `model`, `trainer` ...), which are not for importing by others. So
that `import zeromt` is quick and safe, nothing of them is imported before it is asked for.

    import zeromt

    trained = zeromt.load("runs/my")    # .model, a torch module; .tokenizer; .config; .checkpoint
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from configs import UserError
    from trainer.inference.loading import TrainedModel

__all__ = ["UserError", "__version__", "load"]


def load(path: str | Path, *, raw_weights: bool = False, plugins: Sequence[str | Path] = ()) -> "TrainedModel":
    """The model of a run or of one checkpoint, ready to translate.

    Args:
        path: a run's folder, whose newest whole checkpoint is taken, or a checkpoint; `~` is the home folder.
        raw_weights: the weights as training has them, and not their moving average where there is one.
        plugins: Python files with components that the run was trained with; they are run. No run names them by itself.

    Raises:
        UserError: there is no whole checkpoint, or a plugin is missing or another; the message is one line.
    """
    from configs.files import expand
    from configs.plugins import load_named
    from trainer.inference.loading import load_trained

    load_named([str(plugin) for plugin in plugins])
    return load_trained(Path(expand(str(path))), raw=raw_weights)


def __getattr__(name: str) -> Any:
    if name == "UserError":
        from configs import UserError

        return UserError
    if name == "__version__":
        from importlib import metadata

        return metadata.version("zeromt")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
