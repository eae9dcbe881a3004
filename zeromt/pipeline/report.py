"""`report.md` of a pipeline: all that its records and results say."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from configs import UserError
from configs.process.document import Cell, Code, Part, Table, to_markdown
from configs.process.files import disk_errors, inside
from data_pipeline.inspection import is_dataset
from data_pipeline.preparation.raw.lines import MERGED, LineReader, merged_file, summary_file
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tables import dataset_tables
from trainer.runs.layout import REPORT
from zeromt.pipeline.status import graph_of, rows_of

NUM_SAMPLES = 3
_OF_SPEED = ("pairs", "sentences_per_second")


def write(folder: Path) -> Path:
    """Write the report of a pipeline beside its results; returns the file."""
    graph, rows = graph_of(folder), list(rows_of(folder))
    results = {name: [Path(path) for path in step["results"].values()] for name, step in graph["steps"].items()}
    inputs: list[Sequence[Cell]] = [(name, Code(path)) for name, path in graph["inputs"].items()]
    parts = [
        Part(title="Steps", listing=("mermaid", mermaid(rows)), tables=[_steps(rows)]),
        Part(title="Inputs", tables=[Table(head=("name", "file"), rows=inputs)] if inputs else []),
        Part(title="Scores", tables=list(_scores(results))),
        Part(title="Runs", tables=list(_runs(results))),
        Part(title="Corpora", tables=list(_datasets(results))),
        Part(title="Translations", tables=list(_translations(results))),
    ]
    done = sum(row["state"] in ("done", "given") for row in rows)
    note = f"{done} of {len(rows)} steps are done; recipe: {graph['file']}"
    with disk_errors("output", folder):
        inside.write_text(folder / REPORT, to_markdown(f"Pipeline {folder.name}", parts, notes=[note]))
    return folder / REPORT


def mermaid(rows: Sequence[Mapping[str, Any]]) -> str:
    """The graph as Mermaid text, which GitHub and GitLab draw."""
    lines = ["graph LR"]
    for row in rows:
        lines.append(f'  {row["step"]}["{row["step"]} ({row["state"]})"]')
        lines += [f"  {need} --> {row['step']}" for need in row["needs"]]
    return "\n".join(lines)


def _steps(rows: Sequence[Mapping[str, Any]]) -> Table:
    cells: list[Sequence[Cell]] = [
        (
            row["step"],
            row["state"] + (f" ({', '.join(row['jobs'])})" if row.get("jobs") else ""),
            tqdm.format_interval(row["seconds"]) if "seconds" in row else "",
            ", ".join(row["needs"]),
            Code(" ".join(row.get("words", ()))),
        )
        for row in rows
    ]
    return Table(head=("step", "state", "time", "needs", "command"), rows=cells)


def _scores(results: Mapping[str, Sequence[Path]]) -> Iterator[Table]:
    """What `zeromt evaluate` and `compare` have printed as JSON: for each set the figures, with their intervals."""
    for name, paths in results.items():
        for tree in map(_json, paths):
            figures = _compared(tree) if isinstance(tree, dict) and "runs" in tree else _evaluated(tree)
            for which, shown in figures:
                title = f"{name}, {which}" if which else name
                yield Table(
                    title=title, head=("figure", "is"), rows=[(key, str(value)) for key, value in shown.items()]
                )


def _evaluated(tree: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for which, figures in _sets(tree):
        shown = {key: value for key, value in figures.items() if _is_figure(key, value, figures)}
        yield which, {**shown, **{key: figures[key] for key in _OF_SPEED if key in figures}}


def _compared(tree: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Of each set scores by metric and run, and each one's difference from the first run."""
    for one in tree["sets"]:
        shown = {}
        for score in one["scores"]:
            for run, of_run in zip(tree["runs"], score["runs"], strict=True):
                text = f"{of_run['score']:.2f} ± {of_run['interval'] or 0:.2f}"
                if of_run["difference"] is not None:
                    text += f" ({of_run['difference']:+.2f} ± {of_run['difference_interval'] or 0:.2f})"
                shown[f"{score['label']} of {run['label']}"] = text
        yield one["name"], shown


def _sets(tree: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(tree, dict) and isinstance(tree.get("sets"), dict):
        yield from tree["sets"].items()
    elif isinstance(tree, dict):
        yield "", tree


def _is_figure(key: str, value: Any, figures: Mapping[str, Any]) -> bool:
    """Whether it is a score, which has a signature, or a difference or interval of one."""
    of = [name.removesuffix("_signature") for name in figures if name.endswith("_signature")]
    return not key.endswith("_signature") and not isinstance(value, str) and any(one in key for one in of)


def _runs(results: Mapping[str, Sequence[Path]]) -> Iterator[Table]:
    """Where the reports of runs are."""
    rows: list[Sequence[Cell]] = [
        (name, Code(str(path / REPORT)))
        for name, paths in results.items()
        for path in paths
        if (path / REPORT).is_file()
    ]
    if rows:
        yield Table(head=("step", "report"), rows=rows)


def _datasets(results: Mapping[str, Sequence[Path]]) -> Iterator[Table]:
    for name, paths in results.items():
        for path in filter(is_dataset, paths):
            try:
                yield from dataset_tables(Dataset.load(path), name, num_samples=NUM_SAMPLES)
            except (UserError, OSError) as error:
                yield Table(title=name, head=(), rows=(), notes=[f"cannot be read: {error}"])


def _translations(results: Mapping[str, Sequence[Path]]) -> Iterator[Table]:
    """Of each translated corpus: lines, holes, and the first lines."""
    for name, paths in results.items():
        for path in paths:
            summary = _json(summary_file(path / MERGED))
            if isinstance(summary, dict):
                with contextlib.suppress(UserError, OSError):
                    first = list(itertools.islice(LineReader(merged_file(path)).lines(), NUM_SAMPLES))
                    title = f"{name}: {summary['lines']:,} lines, {summary['holes']:,} without a translation"
                    yield Table(title=title, head=("the first",), rows=[([(line, False)],) for line in first])


def _json(path: Path) -> Any:
    with contextlib.suppress(OSError, ValueError, UserError):
        return inside.read_json(path)
    return None
