"""Packages that only an export needs."""

import importlib
from typing import Any

from configs import UserError


def optional(name: str, option: str) -> Any:
    """A module of the `export` extra.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UserError(
            f"{option}: needs the package {package} ({error}); install it by `pip install 'zeromt[export]'`"
        ) from error
