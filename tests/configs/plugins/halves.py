"""A plugin with a schedule, and what becomes of it."""

import hashlib
from pathlib import Path

import pytest

from configs import UserError, load_run
from configs.components.registry import registered

HALVES = '''
from configs.components import Schedule, component
from configs.fields import Positive

with open(__file__ + ".runs", "a") as file:
    file.write("x")


@component("schedule", "halves")
class Halves(Schedule):
    """Half the rate after so many updates."""

    every: Positive = 10

    def factor(self, update, last):
        return 0.5 ** (update // self.every)
'''
USED = "schedule: {kind: halves, every: 5}\n"


def runs(path: Path) -> int:
    """How often a plugin was run."""
    marks = Path(f"{path}.runs")
    return len(marks.read_text()) if marks.exists() else 0


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(*arguments: object, **options: object) -> str:
    """What a configuration is refused for: one line."""
    before = registered()
    with pytest.raises(UserError) as caught:
        load_run(*arguments, **options)  # type: ignore[arg-type]
    assert registered() == before, "a plugin that is refused leaves nothing"
    assert "\n" not in str(caught.value)
    return str(caught.value)
