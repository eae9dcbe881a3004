"""The report of a pipeline: one HTML file, with all that its records and results say, and no script."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from configs import UserError
from configs.process.files import disk_errors, inside
from configs.process.text import visible
from data_pipeline.preparation.raw.lines import MERGED, LineReader, merged_file, summary_file
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import INDEX_FILE, REPORT_FILE
from zeromt.pipeline.status import graph_of, rows_of

REPORT = "report.html"
_NUM_SAMPLES = 3
_BINS = 12
_WIDTH, _HEIGHT, _GAP = 170, 30, 46
"""Of a step in the picture, and between rows, in pixels."""
_OF_SPEED = ("pairs", "sentences_per_second")


def write(folder: Path) -> Path:
    """Write the report of a pipeline beside its results; returns the file."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"visible": lambda text: visible(str(text)), "interval": tqdm.format_interval}
    template = resources.files(__package__ or "").joinpath("report.html").read_text(encoding="utf-8")
    graph, rows = graph_of(folder), list(rows_of(folder))
    results = {name: [Path(path) for path in step["results"].values()] for name, step in graph["steps"].items()}
    text = environment.from_string(template).render(
        name=folder.name,
        file=graph["file"],
        inputs=graph["inputs"],
        rows=rows,
        boxes=(boxes := list(_boxes(rows))),
        lines=list(_lines(boxes, rows)),
        width=max(box["x"] for box in boxes) + _WIDTH + 10,
        height=max(box["y"] for box in boxes) + _HEIGHT + 10,
        mermaid=mermaid(rows),
        scores=list(_scores(results)),
        datasets=list(_datasets(results)),
        translations=list(_translations(results)),
    )
    with disk_errors("output", folder):
        inside.write_text(folder / REPORT, text)
    return folder / REPORT


def mermaid(rows: Sequence[Mapping[str, Any]]) -> str:
    """The graph as Mermaid text, which GitHub and GitLab draw."""
    lines = ["graph LR"]
    for row in rows:
        lines.append(f'  {row["step"]}["{row["step"]} ({row["state"]})"]')
        lines += [f"  {need} --> {row['step']}" for need in row["needs"]]
    return "\n".join(lines)


def _boxes(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Where each step is drawn: below the last of those that it needs."""
    level: dict[str, int] = {}
    taken: dict[int, int] = {}
    for row in rows:
        depth = level[row["step"]] = max((level.get(need, -1) + 1 for need in row["needs"]), default=0)
        column = taken[depth] = taken.get(depth, -1) + 1
        place = {"x": 10 + column * (_WIDTH + 24), "y": 10 + depth * (_HEIGHT + _GAP)}
        yield {"step": row["step"], "state": row["state"], "w": _WIDTH, "h": _HEIGHT, **place}


def _lines(boxes: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The path of each arrow, from the bottom of a step to the top of one that needs it."""
    place = {box["step"]: box for box in boxes}
    for row in rows:
        for need in set(row["needs"]) & place.keys():
            a, b = place[need], place[row["step"]]
            (x, y), (to_x, to_y) = (a["x"] + _WIDTH // 2, a["y"] + _HEIGHT), (b["x"] + _WIDTH // 2, b["y"])
            yield f"M{x} {y} C{x} {y + _GAP // 2} {to_x} {to_y - _GAP // 2} {to_x} {to_y}"


def _scores(results: Mapping[str, Sequence[Path]]) -> Iterator[dict[str, Any]]:
    """What `zeromt evaluate` and `compare` have printed as JSON: for each set the figures, with their intervals."""
    for name, paths in results.items():
        for tree in map(_json, paths):
            if isinstance(tree, dict) and "runs" in tree and isinstance(tree.get("sets"), list):
                yield from ({"step": name, "set": one["name"], "figures": _compared(tree, one)} for one in tree["sets"])
                continue
            for which, figures in _sets(tree):
                shown = {key: value for key, value in figures.items() if _is_figure(key, value, figures)}
                speed = {key: figures[key] for key in _OF_SPEED if key in figures}
                yield {"step": name, "set": which, "figures": {**shown, **speed}}


def _compared(tree: Mapping[str, Any], one: Mapping[str, Any]) -> dict[str, str]:
    """A set's scores by metric and run, and each one's difference from the first run."""
    shown = {}
    for score in one["scores"]:
        for run, of_run in zip(tree["runs"], score["runs"], strict=True):
            text = f"{of_run['score']:.2f} \u00b1 {of_run['interval'] or 0:.2f}"
            if of_run["difference"] is not None:
                text += f" ({of_run['difference']:+.2f} \u00b1 {of_run['difference_interval'] or 0:.2f})"
            shown[f"{score['label']} of {run['label']}"] = text
    return shown


def _sets(tree: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(tree, dict) and isinstance(tree.get("sets"), dict):
        yield from tree["sets"].items()
    elif isinstance(tree, dict):
        yield "", tree


def _is_figure(key: str, value: Any, figures: Mapping[str, Any]) -> bool:
    """Whether it is a score, which has a signature, or a difference or interval of one."""
    of = [name.removesuffix("_signature") for name in figures if name.endswith("_signature")]
    return not key.endswith("_signature") and not isinstance(value, str) and any(one in key for one in of)


def _datasets(results: Mapping[str, Sequence[Path]]) -> Iterator[dict[str, Any]]:
    """Of each dataset: pairs, what filters dropped, where the pairs come from, scores, and the first pairs."""
    for name, paths in results.items():
        for path in paths:
            index, report = _json(path / INDEX_FILE), _json(path / REPORT_FILE) or {}
            if not isinstance(index, dict):
                continue
            read = max(report.get("read") or index["pairs"], 1)
            dropped = [(rule, number, number / read) for rule, number in index["dropped"].items() if number]
            yield {
                "step": name,
                "direction": f"{index['source_language']} to {index['target_language']}",
                "pairs": index["pairs"],
                "read": read,
                "dropped": dropped,
                "sources": index.get("sources") or [],
                "files": [one["file"] for one in (index.get("recipe") or {}).get("inputs", [])],
                **_looked_into(path),
            }


def _looked_into(path: Path) -> dict[str, Any]:
    """The first pairs of a dataset, and a histogram of each of its scores."""
    with contextlib.suppress(UserError, OSError, ValueError):
        data = Dataset.load(path)
        pairs = [data.pieces(number) for number in range(min(_NUM_SAMPLES, data.num_pairs))]
        sources, targets = zip(*pairs, strict=True)
        texts = [data.tokenizer.decode_source(list(sources)), data.tokenizer.decode_target(list(targets))]
        histograms = {name: _histogram(data.score(name)) for name in data.scores()}
        return {"samples": list(zip(*texts, strict=True)), "histograms": histograms}
    return {"samples": [], "histograms": {}}


def _histogram(scores: NDArray[np.float32]) -> list[tuple[str, int, float]]:
    """Of each bin its lower end, how many pairs it has, and the share of the fullest bin."""
    numbers, ends = np.histogram(scores[np.isfinite(scores)], bins=_BINS)
    return [(f"{end:.3g}", int(n), n / max(numbers.max(), 1)) for end, n in zip(ends[:-1], numbers, strict=True)]


def _translations(results: Mapping[str, Sequence[Path]]) -> Iterator[dict[str, Any]]:
    """Of each translated corpus: lines, holes, and the first lines."""
    for name, paths in results.items():
        for path in paths:
            summary = _json(summary_file(path / MERGED))
            if isinstance(summary, dict):
                with contextlib.suppress(UserError, OSError):
                    first = itertools.islice(LineReader(merged_file(path)).lines(), _NUM_SAMPLES)
                    yield {"step": name, **summary, "samples": list(first)}


def _json(path: Path) -> Any:
    with contextlib.suppress(OSError, ValueError, UserError):
        return inside.read_json(path)
    return None
