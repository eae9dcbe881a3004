"""Errors of prepared data."""

from configs import UserError


class DataError(UserError):
    """A prepared dataset is not what its index says. The message names file and block."""


class ReadError(Exception):
    """Why something could not be read. Whoever knows the name of what catches it and adds that."""


class MissingError(ReadError):
    """There is no such file."""
