"""Errors of prepared data."""

from configs import UserError


class DataError(UserError):
    """A prepared dataset is not what its index says. The message names file and block."""


class OtherDataError(UserError):
    """A dataset is not the one that was opened: it was overwritten while it was read. No block of it is skipped."""


class ReadError(Exception):
    """Why something could not be read. The caller, who knows its name, catches this and adds the name."""


class MissingError(ReadError):
    """There is no such file."""
