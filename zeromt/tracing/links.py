"""A chain: what a line is, what is wrong with what is said of it, and what it was made of."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from configs import UserError
from configs.process.files import exists, explain, is_dir, is_file
from configs.process.text import visible

What = Literal["pair", "translation", "text"]
"""A pair of a dataset, a line of `zeromt translate --merge`, a line of a raw file."""


@dataclasses.dataclass(kw_only=True, slots=True)
class Link:
    """A line, and the links that it was made of."""

    what: What
    where: str
    facts: dict[str, Any]
    """What is known of it, by names for people and JSON."""
    problems: list[str] = dataclasses.field(default_factory=list)
    """What is missing, or not what was recorded."""
    made_of: list["Link"] = dataclasses.field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the chain from here on leads to files that are as recorded."""
        return not self.problems and all(link.is_whole for link in self.made_of)

    def tree(self) -> dict[str, Any]:
        """As JSON."""
        made_of = [link.tree() for link in self.made_of]
        return {"what": self.what, "where": self.where, **self.facts, "problems": self.problems, "made_of": made_of}

    def lines(self, indent: str = "") -> Iterator[str]:
        """For people."""
        yield visible(f"{indent}{self.where}")
        for name, value in self.facts.items():
            for one in value if isinstance(value, list) else [value]:
                text = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
                yield visible(f"{indent}  {name:<11} {text}")
        yield from (visible(f"{indent}  PROBLEM     {problem}") for problem in self.problems)
        for link in self.made_of:
            yield from link.lines(f"{indent}  ")

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Make errors problems of this link."""
        try:
            yield
        except UserError as error:
            self.problems.append(str(error))
        except OSError as error:
            self.problems.append(f"{error.filename}: cannot be read: {explain(error)}")

    def are_missing(self, paths: Iterable[Path]) -> bool:
        """Whether one of some files is gone; each becomes a problem."""
        missing = [path for path in dict.fromkeys(paths) if not (is_file(path) or is_dir(path))]
        self.problems += [f"not found any more: {path}" for path in missing]
        return bool(missing)


def found(given: str, folder: str) -> Path:
    """A path as it was given, from the current folder or, if nothing is there, from the folder of then."""
    return Path(given) if exists(given) else Path(folder, given)
