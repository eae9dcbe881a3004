"""The curves of runs: figures by updates, by target tokens and by time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from configs.components.training import OF_REFERENCES
from trainer.runs.course import TRAINING, Course, read_course
from trainer.runs.metrics_file import read_shown
from zeromt.comparing.subjects import Subject

AXES = ("updates", "target tokens", "hours")
MOST_POINTS = 400
"""Most points of a curve; of more, every n-th is kept."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Curve:
    """One figure of one run over time."""

    axes: Mapping[str, Sequence[float | None]]
    """The position of its points on each of `AXES`; None if it is not known."""
    values: Sequence[float]
    begins: int = 0
    """The first point that may be compared with the last: those before are of another series of scores."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Figure:
    """One figure, with the curves of several runs."""

    key: str
    label: str
    digits: int
    higher_is_better: bool | None
    curves: Sequence[Curve]
    """One per run; a run without the figure has a curve without points."""
    is_compared: bool = True
    """Whether it is a row of the tables: a figure of one set is one where runs have different sets."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Common:
    """The values of a figure at the farthest point that all runs have reached."""

    axis: str
    at: float
    values: Sequence[float]
    """One value per run, interpolated linearly."""


def read_curves(subjects: Sequence[Subject], validated: Sequence[Mapping[str, str]] = ()) -> list[Figure]:
    """Curves of every logged figure: the training loss, then those of evaluations.

    Args:
        subjects: the runs.
        validated: of each run, what identifies the text of its validation sets, by name; empty if that is not known.
    """
    of_runs = [read_course(subject.folder) for subject in subjects]
    by_set = _name_sets(of_runs, validated or [{} for _ in subjects], [subject.label for subject in subjects])
    keys = list(dict.fromkeys(key for logged in of_runs for key in logged.figures))
    shown = [read_shown(subject.folder).figures for subject in subjects if subject.folder is not None]
    curves = []
    for key in keys:
        name, slash, part = key.partition("/")
        known = next((figures[name] for figures in shown if name in figures), OF_REFERENCES.get(name))
        label = "training loss" if key == TRAINING else "validation loss" if name == "loss" else None
        label = label or (known.label if known else name)
        curves.append(
            Figure(
                key=key,
                label=f"{label}, {part}" if slash and key != TRAINING else label,
                digits=known.digits if known else 4 if key == TRAINING else 2,
                higher_is_better=known.higher_is_better if known else False if key == TRAINING else None,
                curves=[
                    _curve(logged.figures.get(key, []), logged.places, logged.begins if known else 0)
                    for logged in of_runs
                ],
                is_compared=key == TRAINING or not slash or key in by_set,
            )
        )
    return curves


def _name_sets(of_runs: Sequence[Course], validated: Sequence[Mapping[str, str]], labels: Sequence[str]) -> set[str]:
    """Where runs are not validated on the same sets, rename their figures by what they are of; returns the new names.

    `chrf` becomes `chrf/NAME` in a run with one set, and `chrf/mean over NAME, NAME` in one with several; figures of
    equal sets get one name.
    """
    sets = [_sets_of(logged, known) for logged, known in zip(of_runs, validated, strict=True)]
    is_evaluated = [bool(logged.figures.keys() - {TRAINING}) for logged in of_runs]
    different = {frozenset(of_run.values()) for of_run, is_known in zip(sets, is_evaluated, strict=True) if is_known}
    if len(different) < 2:
        return set()
    names: dict[str, str] = {}
    for of_run, known, label in zip(sets, validated, labels, strict=True):
        for name, text in of_run.items():
            called = name or next(iter(known), "its one set")
            names.setdefault(text, f"{called} of {label}" if called in names.values() else called)
    renamed = set()
    for logged, of_run in zip(of_runs, sets, strict=True):
        called = ", ".join(names[text] for text in of_run.values())
        whole = called if len(of_run) == 1 else f"mean over {called}"
        figures: dict[str, list[tuple[int, float]]] = {}
        for key, points in logged.figures.items():
            figure, _, part = key.partition("/")
            if key != TRAINING and (not part or part in of_run):
                key = f"{figure}/{names[of_run[part]] if part else whole}"
                renamed.add(key)
            figures[key] = points
        logged.figures = figures
    return renamed


def _sets_of(logged: Course, validated: Mapping[str, str]) -> dict[str, str]:
    """What identifies the validation sets of a run's scores, by the names in its figures; an only one has none."""
    if not logged.sets:
        return {"": next(iter(validated.values())) if len(validated) == 1 else "unknown"}
    names = [name for name in logged.sets if name in validated] or logged.sets
    return {name: validated.get(name, f"unknown {name}") for name in names}


def _curve(
    points: Sequence[tuple[int, float]], places: Mapping[str, tuple[list[float], list[float]]], begins: int
) -> Curve:
    """A curve whose points get their tokens and hours from the training lines around them.

    Args:
        points: steps and values.
        places: steps and what is known there, by axis.
        begins: the step of the first that may be compared with the last.
    """
    points = list(dict(points).items())  # a step that was made twice counts by its last line
    points = points[:: max(1, -(-len(points) // MOST_POINTS))] + (points[-1:] if len(points) > MOST_POINTS else [])
    points = sorted(dict(points).items())
    steps = [float(step) for step, _ in points]
    axes: dict[str, Sequence[float | None]] = {"updates": steps}
    for name, (known, values) in places.items():
        pairs = sorted({s: v for s, v in zip(known, values, strict=True) if math.isfinite(v)}.items())
        if not pairs:
            axes[name] = [None] * len(steps)
            continue
        at = np.interp(steps, [0.0, *(s for s, _ in pairs)], [0.0, *(v for _, v in pairs)])
        axes[name] = [float(x) for x in at]
    first = min(sum(step < begins for step in steps), max(0, len(steps) - 1))
    return Curve(axes=axes, values=[value for _, value in points], begins=first)


def in_common(figure: Figure) -> list[Common]:
    """The figure at equal updates, target tokens and hours; empty if a run has no points."""
    common = []
    for axis in AXES:
        places = [[(x, y) for x, y in zip(c.axes[axis], c.values, strict=True) if x is not None] for c in figure.curves]
        if not all(places):
            continue
        at = min(points[-1][0] for points in places)
        if at < max(points[0][0] for points in places):
            continue
        values = [float(np.interp(at, [x for x, _ in points], [y for _, y in points])) for points in places]
        common.append(Common(axis=axis, at=at, values=values))
    return common
