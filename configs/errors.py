"""Errors that are the user's to mend. The command line turns them into exit code 2 and one line each."""

from collections.abc import Sequence


class UserError(Exception):
    """The user's input is wrong. The message is one line: what, which value, and what is allowed."""


class ConfigError(UserError):
    """A configuration is wrong; `problems` holds every error that was found, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))
