"""Errors that the user can fix. The command line prints each as one line and exits with code 2."""

from collections.abc import Sequence


class UserError(Exception):
    """The user's input is wrong. The message is one line: the field or option, its value, and what to do."""


class ConfigError(UserError):
    """A configuration has errors; `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))
