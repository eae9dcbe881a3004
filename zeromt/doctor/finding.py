"""The findings of checks."""

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
    """A fault fails a run or makes its results wrong; a doubt may do so."""
    said: str
    """What was found."""
    mend: str = ""
    """What to do about it; empty if nothing is wrong."""


def good(subject: str, said: str) -> Finding:
    """A finding that nothing is wrong."""
    return Finding(subject=subject, grade="good", said=said)


def doubt(subject: str, said: str, mend: str) -> Finding:
    """A finding that something may be wrong."""
    return Finding(subject=subject, grade="doubt", said=said, mend=mend)


def fault(subject: str, said: str, mend: str) -> Finding:
    """A finding that something is wrong."""
    return Finding(subject=subject, grade="fault", said=said, mend=mend)


def refused(subject: str, error: UserError) -> Iterator[Finding]:
    """A fault for each line of an error. The part after the last semicolon says what to do."""
    for line in str(error).splitlines():
        said, _, mend = line.rpartition("; ")
        yield fault(subject, said or line, mend if said else "see there")


def findings_of(subject: str, check: Callable[[], str]) -> Iterator[Finding]:
    """The findings of a check: a function that raises UserError, or describes what is there if nothing is wrong."""
    try:
        yield good(subject, check())
    except UserError as error:
        yield from refused(subject, error)
