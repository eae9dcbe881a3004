"""The commands: one folder for each task; and `zeromt.load`, the interface from Python.

The packages below it have common names (`configs`, `model`, `trainer` ...) and are not a public interface. They are
imported only when needed, so that `import zeromt` is quick and safe.

    import zeromt

    model = zeromt.load("runs/my")    # .model, a torch module; .tokenizer; .config; .checkpoint
    model.translate(["Hello."], beam=5)

docs/python.md describes them. The names in `__all__` follow semantic versioning.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from configs import UserError
    from zeromt.loading import LoadedModel, load

__all__ = ["LoadedModel", "UserError", "__version__", "load"]

_MODULES = {"LoadedModel": "zeromt.loading", "UserError": "configs", "load": "zeromt.loading"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("zeromt")
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
