"""What decides a step's result, and why it would be made again.

Words and settings count with their references, not with paths, so that a moved folder changes nothing; where and by how
many processes a step runs does not count, because it changes no result.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.runs.layout import versions
from zeromt.pipeline.digests import Digests
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.records import Records

_PACKAGES = ("zeromt", "torch", "deepspeed", "sentencepiece", "sacrebleu", "ctranslate2")
"""Those whose versions decide what zeromt's commands write."""
NEVER = "never begun"
PENDING = "pending"
"""In place of the digest of a result that is still to be made."""


class Need(enum.Enum):
    """Whether a step runs."""

    DONE = "done"
    RUN = "run"
    MAYBE = "maybe"
    """If a result that it needs, and that is made anew, turns out to be another one."""
    USED = "used"
    """Its result is somebody else's."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Decision:
    """What is to be done with a step, and why."""

    need: Need
    why: str
    material: Mapping[str, Any]


class Keys:
    """Decides which steps run."""

    def __init__(self, pipeline: Pipeline, records: Records, digests: Digests) -> None:
        self._pipeline, self._records, self._digests = pipeline, records, digests
        self._versions = dict(versions(_PACKAGES))

    def plan(self, names: Sequence[str]) -> dict[str, Decision]:
        """What is to be done with some steps, which are in order, as things are now."""
        planned: dict[str, Decision] = {}
        for name in names:
            pending = {need for need in self._pipeline.needs[name] if _is_pending(planned.get(need))}
            planned[name] = self._decide(name, pending)
        return planned

    def _decide(self, name: str, pending: Set[str]) -> Decision:
        """What to do with a step.

        Args:
            name: of the step.
            pending: steps that it needs and that may have other results when its turn comes.
        """
        step = self._pipeline.steps[name]
        material = self.material(name)
        if step.use is not None:
            return Decision(need=Need.USED, why=f"uses {self._pipeline.path(name)}", material=material)
        record = self._records.read(name)
        if record is None:
            return Decision(need=Need.RUN, why=NEVER, material=material)
        changes = list(_changes(record.material, material, pending))
        if changes:
            return Decision(need=Need.RUN, why="; ".join(changes), material=material)
        if not record.is_done:
            why = "was not finished" if record.code is None else f"ended with exit code {record.code}"
            return Decision(need=Need.RUN, why=why, material=material)
        now = self.results(name)
        if lost := [part for part in now if now[part] != record.results.get(part)]:
            path = self._pipeline.results(name)[lost[0]]
            why = f"{path} is not {'there' if now[lost[0]] is None else 'what it made'}"
            return Decision(need=Need.RUN, why=why, material=material)
        if pending:
            return Decision(need=Need.MAYBE, why=f"if {' or '.join(sorted(pending))} changes", material=material)
        return Decision(need=Need.DONE, why="", material=material)

    def material(self, name: str) -> dict[str, Any]:
        """All that decides the result of a step, as things are."""
        step = self._pipeline.steps[name]
        return {
            "words": step.words,
            "config": step.config,
            "continue": step.continues,
            "stdout": step.stdout,
            "outputs": step.outputs,
            "parts": step.parts is not None,
            "inputs": {need: self.identity(need) for need in self._pipeline.needs[name]},
            "versions": self._versions if step.is_zeromt() else {},
        }

    def identity(self, name: str) -> str | None:
        """The digest of an input or of a step's results."""
        if name in self._pipeline.inputs or self._pipeline.steps[name].use is not None:
            return self._digests.of(Path(self._pipeline.path(name)))
        record = self._records.read(name)
        if record is None or not record.is_done:
            return PENDING
        values = list(record.results.values())
        return values[0] if len(values) == 1 else "+".join(values)

    def results(self, name: str) -> dict[str, str | None]:
        """The digests of a step's results, as they are now."""
        return {part: self._digests.of(path) for part, path in self._pipeline.results(name).items()}


def _is_pending(decision: Decision | None) -> bool:
    return decision is not None and decision.need in (Need.RUN, Need.MAYBE)


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], pending: Set[str]) -> Iterator[str]:
    """What differs between what a result was made of and what it would be made of, for people."""
    for key in now:
        if key in ("inputs", "versions"):
            old, new = before.get(key) or {}, now[key]
            for name in dict.fromkeys([*new, *old]):
                if old.get(name) != new.get(name) and name not in pending:
                    shown = f" ({old.get(name)} -> {new.get(name)})" if key == "versions" else ""
                    yield f"{name} has changed{shown}" if name in new and name in old else f"{name}: {_came(name, new)}"
        else:
            shown = "the command" if key == "words" else key
            yield from (f"{place} has changed" for place in places(before.get(key), now[key], shown))


def _came(name: str, new: Mapping[str, Any]) -> str:
    return "needed now" if name in new else "needed no more"


def places(before: Any, now: Any, place: str) -> Iterator[str]:
    """Where two trees differ."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*now, *before]):
            if key not in now or key not in before:
                yield f"{place}.{key}"
            else:
                yield from places(before[key], now[key], f"{place}.{key}")
    elif before != now:
        yield place
