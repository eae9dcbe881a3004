"""What a command of `zeromt` is: said without anything heavy, since `zeromt --help` lists them all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from launcher.options.parser import Parser


@dataclass(kw_only=True, slots=True, frozen=True)
class Command:
    """A command: what it does, its arguments, and the `module:function` that receives them by name."""

    summary: str
    usage: str
    add_arguments: Callable[[Parser], None]
    target: str
    computes: bool = False
    """Whether its process takes threads and devices that the environment names."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Arguments that the command's name says."""
