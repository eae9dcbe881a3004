"""Errors of prepared data."""

from configs import UserError


class DataError(UserError):
    """A prepared dataset is not what its index says. The message names file and block."""


class ReadError(Exception):
    """Why something could not be read. The caller, who knows its name, catches this and adds the name."""


class MissingError(ReadError):
    """There is no such file."""
