"""What a check has found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from configs.errors import UserError

Grade = Literal["good", "doubt", "fault"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    grade: Grade
    """A fault ends a run or falsifies it; a doubt may."""
    said: str
    mend: str = ""
    """What to do; nothing where all is well."""


def good(subject: str, said: str) -> Finding:
    """All is well."""
    return Finding(subject=subject, grade="good", said=said)


def doubt(subject: str, said: str, mend: str) -> Finding:
    """Something may be wrong."""
    return Finding(subject=subject, grade="doubt", said=said, mend=mend)


def fault(subject: str, said: str, mend: str) -> Finding:
    """Something is wrong."""
    return Finding(subject=subject, grade="fault", said=said, mend=mend)


def refused(subject: str, error: UserError) -> Iterator[Finding]:
    """What commands say of it, a line for each error: what is wrong, and behind the last semicolon what to do."""
    for line in str(error).splitlines():
        said, _, mend = line.rpartition("; ")
        yield fault(subject, said or line, mend if said else "see there")


def tried(subject: str, try_: Callable[[], str]) -> Iterator[Finding]:
    """What comes of a check that raises UserError where something is wrong, and else says what is there."""
    try:
        yield good(subject, try_())
    except UserError as error:
        yield from refused(subject, error)
