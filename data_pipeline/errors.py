"""Errors of prepared data."""

from configs import UserError


class DataError(UserError):
    """A prepared dataset is not what its index says. The message names file and block."""
