"""zeromt from Python: the top layer, which calls the functions behind the command line.

The packages below it have common names (`configs`, `model`, `trainer` ...) and are not a public interface. They are
imported only when needed, so that `import zeromt` is quick and safe.

    import zeromt

    zeromt.prepare("my.yaml")
    zeromt.train("my.yaml", on_log=print)
    model = zeromt.load("runs/my")    # .model, a torch module; .tokenizer; .config; .checkpoint
    model.translate(["Hello."], beam=5)

docs/python.md describes errors and Ctrl-C. The names in `__all__` follow semantic versioning.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from configs import UserError
    from zeromt.commands import CommandError, Outcome, export, prepare, train
    from zeromt.loading import LoadedModel, load

__all__ = [
    "CommandError",
    "LoadedModel",
    "Outcome",
    "UserError",
    "__version__",
    "export",
    "load",
    "prepare",
    "train",
]

_MODULES = {
    "CommandError": "zeromt.commands",
    "LoadedModel": "zeromt.loading",
    "Outcome": "zeromt.commands",
    "UserError": "configs",
    "export": "zeromt.commands",
    "load": "zeromt.loading",
    "prepare": "zeromt.commands",
    "train": "zeromt.commands",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("zeromt")
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
