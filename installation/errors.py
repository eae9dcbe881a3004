"""The error that ends a command with one line."""


class InstallationError(Exception):
    """Something that the user can put right: the message says what, and what to do."""
