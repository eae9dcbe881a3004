"""The description of a `zeromt` command. It imports nothing heavy, because `zeromt --help` lists all commands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from launcher.options.parser import Parser

Group = Literal["prepare data", "train", "clusters", "look into a run", "use a model", "tools"]
"""The groups of commands, in their order."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Command:
    """A command: summary, arguments, and the `module:function` that is called with the arguments by name."""

    summary: str
    usage: str
    add_arguments: Callable[[Parser], None]
    target: str
    computes: bool = False
    """Whether it computes, so that the environment variables for threads and devices are checked first."""
    group: Group = "tools"
    """Under which `zeromt help` lists it."""
