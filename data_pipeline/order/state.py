"""The position of a stream: a few integers, so that resuming costs the same anywhere in an epoch."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from configs import UserError
from configs.fields import STRICT

Count = Annotated[int, Field(ge=0, strict=True)]


class LaneCursor(NamedTuple):
    """A lane's next micro-batch of one dataset."""

    pass_: Count
    """Pass over the dataset; equals the epoch if there is one dataset."""
    window: Count
    """Window of the lane in this pass; if it equals the number of windows, the lane has finished the pass."""
    position: Count
    """The lane's next micro-batch in the window."""
    taken: Count = 0
    """Pairs of the dataset that the lane has handed out: in a mixture over all epochs, otherwise in this pass."""
    before: Count = 0
    """The lane's micro-batches of the pass before this window."""


@dataclass(frozen=True)
class StreamState:
    """The position of one rank's lanes or, merged, of all K lanes."""

    __pydantic_config__ = STRICT

    epoch: Count
    update: Count
    """Number of updates done in the epoch."""
    lanes: dict[int, tuple[LaneCursor, ...]]
    """A cursor for each dataset."""
    seed: Count
    micro_batches: Annotated[int, Field(ge=1)]
    """K."""
    fingerprints: list[str]
    """Fingerprints of the datasets."""
    proportions: list[int]
    """Of the datasets: `Mixture.proportions`."""
    settings: dict[str, int | str] = field(default_factory=dict)
    """Fields of the section `stream` on which positions within an epoch depend."""
    phase: Count = 0
    """Number of the run's phase, whose datasets these are; 0 too where it has no phases."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; a lane is a list of five integers for each dataset."""
        tree: dict[str, Any] = json.loads(TypeAdapter(StreamState).dump_json(self))
        return tree

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "StreamState":
        """Read what `to_json` gave.

        Raises:
            UserError: it is invalid.
        """
        try:
            return TypeAdapter(cls).validate_json(json.dumps(tree))  # strictly: of JSON, a key of a number is text
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(f"stream state: {where}: {first['input']!r:.100}: {first['msg']}") from error

    @staticmethod
    def merge(states: Sequence["StreamState"]) -> "StreamState":
        """The states of all ranks as one with all K lanes.

        Raises:
            ValueError: they contradict each other, or lanes are missing.
        """
        merged: dict[int, tuple[LaneCursor, ...]] = {}
        for state in states:
            if dataclasses.replace(state, lanes={}) != dataclasses.replace(states[0], lanes={}):
                raise ValueError("the ranks' stream states contradict each other")
            if merged.keys() & state.lanes.keys():
                raise ValueError("two ranks hold the same lane")
            merged.update(state.lanes)
        if sorted(merged) != list(range(states[0].micro_batches)):
            raise ValueError(f"{len(merged)} of {states[0].micro_batches} lanes are there")
        return dataclasses.replace(states[0], lanes=dict(sorted(merged.items())))
