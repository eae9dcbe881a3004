"""The YAML file of a pipeline: its steps, what each needs, and the words that each runs.

A word or a setting names a path by `{NAME}`, of an input or of an earlier step's result, which makes it an input of the
step. `{output}` is the step's own result, `{folder}` that of the pipeline, `{config}` the file with the step's
`config`. `{{` and `}}` are braces.
"""

import dataclasses
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from configs.errors import ConfigError
from configs.fields import Positive
from configs.load import parse_tree
from configs.process import files
from configs.reading.layers import Layers
from configs.reading.shipped import find_yaml
from configs.reading.variables import as_saved, escaped

RECORDS = ".pipeline"
"""The folder of records, next to the results."""
_OWN = ("output", "folder", "config")
_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_REFERENCE = re.compile(rf"\{{\{{|\}}\}}|\{{({_NAME})\}}")

Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Place:
    """Where steps run."""

    kind: Literal["local", "slurm"] = "local"
    site: str | None = None
    """Profile of the cluster: a YAML file, or the name of an example."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the profile, as with `--set`."""


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class StepSection:
    """One step: a command, or a result that is somebody else's."""

    run: str | list[str | int | float] | None = None
    """The command: a line as in a shell, which expands nothing, or its words."""
    config: dict[str, Any] = field(default_factory=dict)
    """Written to a YAML file, whose name `{config}` is."""
    use: str | None = None
    """A path instead of a command: the result is there already."""
    stdout: str | None = None
    """The file that gets what the command prints; null: the log."""
    parts: Positive | None = None
    """Run the command in so many parts and merge them (`prepare`, `translate`, `score`)."""
    launch: str = ""
    """Options of `zeromt launch`, such as `--nodes 2 --time 10:00:00`: they change no result."""

    def problems(self) -> Iterator[str]:
        """Fields that contradict each other."""
        if (self.run is None) == (self.use is None) or (self.run is not None and not self.words):
            yield "run: give a command here, or a path in `use`"
        if self.parts is not None and not self.is_zeromt("prepare", "translate", "score"):
            yield "parts: allowed for zeromt prepare, translate and score"

    @property
    def words(self) -> list[str]:
        """The command's words, with references; none of a step that uses what is there."""
        return shlex.split(self.run) if isinstance(self.run, str) else list(map(str, self.run or []))

    def is_zeromt(self, *commands: str) -> bool:
        """Whether it is one of these commands of zeromt; any if none is named."""
        program, *rest = [*self.words, ""]
        return program == "zeromt" and (not commands or rest[0] in commands)

    def texts(self) -> list[str]:
        """Everything that may refer to something."""
        return [*self.words, self.use or "", self.stdout or "", *_texts(self.config)]


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class _File:
    """The file, with typed sections."""

    name: Name | None = None
    output: str = "pipelines"
    settings: dict[str, Any] = field(default_factory=dict)
    place: Place = field(default_factory=Place)
    inputs: dict[Name, str] = field(default_factory=dict)
    """Paths from outside by name: files, datasets, runs or other folders."""
    steps: dict[Name, StepSection] = field(default_factory=dict)


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Pipeline:
    """A pipeline whose references have been checked."""

    file: str
    folder: Path
    """Of all results: `output`/`name`."""
    place: Place
    inputs: Mapping[str, str]
    steps: Mapping[str, StepSection]
    """Each behind those that it needs."""
    needs: Mapping[str, Sequence[str]]
    """Inputs and steps that a step refers to."""

    @classmethod
    def read(cls, name: str, overrides: Sequence[str] = ()) -> "Pipeline":
        """Read the file of a pipeline, or one that is shipped, and settings that replace its values.

        Raises:
            ConfigError: a field is wrong, or a reference names nothing that stands before it.
            UserError: the file cannot be read.
        """
        what = f"PIPELINE: {name}"
        path = find_yaml("PIPELINE", name, "configs.pipelines")
        layers = Layers.read(path, what=what)
        for item in overrides:
            layers.put(item)
        given = layers.resolved(what=what)
        section: _File = parse_tree(given, _File)
        problems = [] if section.steps else ["steps: none; give at least one"]
        known, needs = list(section.inputs), dict[str, list[str]]()
        for own, step in section.steps.items():
            if own in (*known, *_OWN):
                problems.append(f"steps.{own}: the name is taken; give another")
            if as_saved(step.run) != step.run:
                problems.append(
                    f"steps.{own}.run: contains ${{oc.env:NAME}}, but commands are recorded; let the program read "
                    "the variable itself, or use it in `inputs` or `config`"
                )
            references = [match for text in step.texts() for match in _REFERENCE.findall(text) if match]
            needs[own] = sorted({*references} - {*_OWN})
            for need in needs[own]:
                if need not in known:
                    allowed = ", ".join([*known, *_OWN])
                    problems.append(
                        f"steps.{own}: {{{need}}}: names no input and no step before it; allowed are {allowed}, and "
                        "{{ for a brace"
                    )
            known.append(own)
        if problems:
            raise ConfigError(problems)
        folder = Path(files.expand(section.output), section.name or path.stem)
        return cls(
            file=name, folder=folder, place=section.place, inputs=section.inputs, steps=section.steps, needs=needs
        )

    def path(self, name: str) -> str:
        """The path of an input, or of a step's result."""
        return self.inputs.get(name) or self.steps[name].use or str(self.folder / name)

    def record(self, step: str, ending: str) -> Path:
        """A file about a step."""
        return self.folder / RECORDS / f"{step}.{ending}"

    def filled(self, text: str, step: str) -> str:
        """A text with its references replaced by paths."""
        own = {"output": self.folder / step, "folder": self.folder, "config": self.record(step, "yaml")}

        def path(match: "re.Match[str]") -> str:
            return match[0][0] if not match[1] else str(own.get(match[1]) or self.path(match[1]))

        return _REFERENCE.sub(path, text)

    def words(self, name: str) -> list[str]:
        """The words of a step, with paths."""
        return [self.filled(word, name) for word in self.steps[name].words]

    def config(self, name: str) -> dict[str, Any]:
        """The settings of a step, with paths; those of a run, or of parts, say where it is unless they do.

        A variable stays as it was written: the command that reads the settings replaces it.
        """
        step = self.steps[name]
        placed: dict[str, Any] = {}
        if step.is_zeromt("train"):
            placed = {"output": str(self.folder), "name": name}
        elif step.is_zeromt("prepare") and step.parts is not None:  # for what its jobs print
            placed = {"output": str(self.folder / RECORDS), "name": name}
        filled = mapped(escaped(step.config), lambda text: as_saved(self).filled(text, name))
        if isinstance(plugins := filled.get("plugins"), list):  # else they would be relative to the written file
            filled["plugins"] = [str(Path(one).absolute()) for one in plugins]
        return {**placed, **filled}

    def plain_paths(self, name: str) -> Iterator[str]:
        """Texts of a step that are paths of something that is there, though they refer to nothing."""
        for text in self.steps[name].texts()[1:]:
            if not _REFERENCE.search(text) and (Path(text).is_file() or (os.sep in text and Path(text).exists())):
                yield text


def _texts(tree: Any) -> Iterator[str]:
    """The texts of a tree."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping | list):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _texts(value)


def mapped(tree: Any, change: Callable[[str], str]) -> Any:
    """A tree with its texts changed; keys stay."""
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: mapped(value, change) for key, value in tree.items()}
    return [mapped(value, change) for value in tree] if isinstance(tree, list) else tree
