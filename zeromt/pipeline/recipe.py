"""The YAML file of a pipeline: its steps, what each needs, and the words that each runs.

A word or a setting names a path by `{NAME}`, of an input or of another step's result, which makes it an input of the
step; `{NAME.PART}` is one of several results of a step. `{output}` is the step's own result, `{folder}` that of the
pipeline, `{config}` the file with the step's `config`. `{{` and `}}` are braces.
"""

import dataclasses
import graphlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from configs.errors import ConfigError, UserError
from configs.fields import Positive
from configs.load import parse_tree
from configs.process import files
from configs.reading.layers import Layers
from configs.reading.own_files import other_kind
from configs.reading.shipped import find_yaml
from zeromt.pipeline.records import RECORDS

_OWN = ("output", "folder", "config")
_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_REFERENCE = re.compile(rf"\{{\{{|\}}\}}|\{{({_NAME})(?:\.({_NAME}))?\}}")
_KEYWORDS = {"from": "parent", "continue": "continues"}
"""Keys of a step that cannot be names in Python."""

Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Place:
    """Where steps run."""

    kind: Literal["local", "slurm"] = "local"
    site: str | None = None
    """Profile of the cluster: a YAML file, or the name of an example."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the profile, as with `--set`."""

    def problems(self) -> Iterator[str]:
        """What contradicts the kind."""
        if self.kind == "local" and (self.site or self.settings):
            yield "site: given with kind local; allowed with slurm"


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class StepSection:
    """One step: a command, or a result that is somebody else's."""

    run: str | list[str] | None = None
    """The command: a line as in a shell, which expands nothing, or its words."""
    config: dict[str, Any] = field(default_factory=dict)
    """Written to a YAML file, whose name `{config}` is."""
    use: str | None = None
    """A path in place of a command: the result is there already."""
    parent: str | None = None
    continues: str | None = None
    needs: list[str] = field(default_factory=list)
    """Further steps and inputs that it depends on, though no word names them."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Results by name, where there are several, or they are not at `{output}`."""
    stdout: str | None = None
    """The file that gets what the command prints; null: the log."""
    parts: Positive | None = None
    """Run the command in so many parts and merge them (`prepare`, `translate`, `score`)."""
    launch: str = ""
    """Options of `zeromt launch`, such as `--nodes 2 --time 10:00:00`: they change no result."""

    def problems(self) -> Iterator[str]:
        """Fields that contradict each other."""
        if (self.run is None) == (self.use is None):
            both = "and not both" if self.run is not None else "for the step has neither"
            yield f"run: give a command here, or a path in `use`, {both}"
        if self.run is not None and not self.words:
            yield "run: empty; give a command"
        if self.parts is not None and not self.is_zeromt("prepare", "translate", "score"):
            yield "parts: allowed for zeromt prepare, translate and score"
        for name, value in (("from", self.parent), ("continue", self.continues)):
            if value is not None and not self.is_zeromt("train"):
                yield f"{name}: allowed for zeromt train"
        if self.parent is not None and self.continues is not None:
            yield "from: given with continue; give one of them"

    @property
    def words(self) -> list[str]:
        """The command's words, with references; none of a step that uses what is there."""
        words = shlex.split(self.run) if isinstance(self.run, str) else list(self.run or [])
        return [*words, "--from", self.parent] if self.parent is not None else words

    def plain_texts(self) -> Iterator[str]:
        """Words and settings that refer to nothing; the program of the command, given as a path, counts as such."""
        found: list[str] = []
        program = [] if any(map(os.path.isabs, self.words[:1])) else self.words[:1]
        _mapped([program, self.words[1:], self.continues or "", self.config], _noting(found))
        yield from (text for text in found if not _REFERENCE.search(text))

    def is_zeromt(self, *commands: str) -> bool:
        """Whether it is one of these commands of zeromt; any if none is named."""
        program, *rest = [*self.words, ""]
        return program == "zeromt" and (not commands or rest[0] in commands)


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class _File:
    """The file, with typed sections."""

    name: Name | None = None
    output: str = "pipelines"
    settings: dict[str, Any] = field(default_factory=dict)
    place: Place = field(default_factory=Place)
    inputs: dict[str, str] = field(default_factory=dict)
    """Paths from outside by name: files, datasets, runs or other folders."""
    steps: dict[str, StepSection] = field(default_factory=dict)


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Pipeline:
    """A pipeline whose references and order have been checked."""

    file: str
    folder: Path
    """Of all results: `output`/`name`."""
    place: Place
    inputs: Mapping[str, str]
    steps: Mapping[str, StepSection]
    """In an order in which each stands behind those that it needs."""
    needs: Mapping[str, tuple[str, ...]]
    """Inputs and steps that a step refers to, sorted."""

    @classmethod
    def read(cls, name: str, overrides: Sequence[str] = ()) -> "Pipeline":
        """Read the file of a pipeline, or one that is shipped, and settings that replace its values.

        Raises:
            ConfigError: a field is wrong, a reference names nothing, or steps need each other in a circle.
            UserError: the file cannot be read.
        """
        what = f"PIPELINE: {name}"
        path = find_yaml("PIPELINE", name, "configs.pipelines")
        layers = Layers.read(path, what=what)
        for item in overrides:
            layers.put(item)
        given = layers.resolved(what=what)
        if (said := other_kind(given, "pipeline", name)) is not None:
            raise UserError(f"{what}: {said}")
        plain, problems = _renamed(given)
        section: _File = parse_tree(plain, _File)
        return cls._checked(name, path, section, problems)

    @classmethod
    def _checked(cls, name: str, path: Path, section: _File, problems: list[str]) -> "Pipeline":
        clash = [one for one in section.steps if one in section.inputs or one in _OWN]
        problems += [f"steps.{one}: the name is taken; give another" for one in clash]
        names = [*section.inputs, *section.steps]
        problems += [f"{one}: allowed are letters, digits, _ and -" for one in names if not re.fullmatch(_NAME, one)]
        if not section.steps:
            problems.append("steps: none; give at least one")
        needs: dict[str, tuple[str, ...]] = {}
        for own, step in section.steps.items():
            needs[own] = tuple(sorted({need for need, _ in references(step)} - {*_OWN} | {*step.needs}))
            problems += [f"steps.{own}: {line}" for line in _unknown(section, step, needs[own])]
        if problems:
            raise ConfigError(problems)
        return cls(
            file=name,
            folder=Path(files.expand(section.output), section.name or path.stem),
            place=section.place,
            inputs=section.inputs,
            steps=_ordered(section.steps, needs),
            needs=needs,
        )

    def path(self, name: str, part: str | None = None) -> str:
        """The path of an input, or of a step's result."""
        if name in self.inputs:
            return self.inputs[name]
        step = self.steps[name]
        if part is not None:
            return self.filled(step.outputs[part], name)
        if step.use is not None:
            return self.filled(step.use, name)
        return str(self.folder / name)

    def results(self, name: str) -> dict[str, Path]:
        """The results of a step by name; `output` where it names none."""
        outputs = self.steps[name].outputs
        return {part: Path(self.path(name, part)) for part in outputs} or {"output": Path(self.path(name))}

    def movable(self, name: str) -> list[Path]:
        """Where a step's results lie, of those places that are in the pipeline's folder and in no other step's."""
        others = [self.folder / other for other in self.steps if other != name]
        own = dict.fromkeys([self.folder / name, *self.results(name).values()])
        return [
            path
            for path in own
            if self.folder in path.parents and not any(other in (path, *path.parents) for other in others)
        ]

    def filled(self, text: str, step: str) -> str:
        """A text with paths in place of references."""
        own = {"folder": str(self.folder), "config": str(self.folder / RECORDS / f"{step}.yaml")}

        def path(name: str, part: str | None) -> str:
            if name == "output":
                return str(self.folder / step)
            return own.get(name) or self.path(name, part)

        return substituted(text, path)

    def words(self, name: str) -> list[str]:
        """The words of a step, with paths."""
        return [self.filled(word, name) for word in self.steps[name].words]

    def config(self, name: str) -> dict[str, Any]:
        """The settings of a step, with paths; those of a run, or of parts, say where it is unless they do."""
        step = self.steps[name]
        placed: dict[str, Any] = {}
        if step.is_zeromt("train"):
            placed = {"output": str(self.folder), "name": name}
        elif step.is_zeromt("prepare") and step.parts is not None:  # for what its jobs print
            placed = {"output": str(self.folder / RECORDS), "name": name}
        filled = _mapped(step.config, lambda text: self.filled(text, name))
        if isinstance(plugins := filled.get("plugins"), list):  # else they would be relative to the written file
            filled["plugins"] = [str(Path(one).absolute()) for one in plugins]
        return {**placed, **filled}

    def wanted(self, names: Sequence[str]) -> list[str]:
        """The named steps and all that they need, in order; all steps if none is named.

        Raises:
            UserError: there is no such step.
        """
        if unknown := [name for name in names if name not in self.steps]:
            raise UserError(f"STEP: {unknown[0]!r}: no such step; the steps are {', '.join(self.steps)}")
        found, left = set[str](), list(names or self.steps)
        while left:
            if (name := left.pop()) in self.steps and name not in found:
                found.add(name)
                left += self.needs[name]
        return [name for name in self.steps if name in found]


def references(step: StepSection) -> Iterator[tuple[str, str | None]]:
    """What a step's texts refer to: names, and parts of them."""
    texts = [*step.words, *step.outputs.values(), step.use or "", step.continues or "", step.stdout or ""]
    found: list[tuple[str, str | None]] = []

    def note(name: str, part: str | None) -> str:
        found.append((name, part))
        return ""

    _mapped([*texts, step.config], lambda text: substituted(text, note))
    yield from found


def substituted(text: str, path: Callable[[str, str | None], str]) -> str:
    """A text with something else for each reference."""
    return _REFERENCE.sub(lambda found: path(found[1], found[2]) if found[1] else found[0][0], text)


def _noting(found: list[str]) -> Callable[[str], str]:
    """Leaves texts as they are, and notes them."""

    def note(text: str) -> str:
        found.append(text)
        return text

    return note


def _mapped(tree: Any, change: Callable[[str], str]) -> Any:
    """A tree with its texts changed; keys stay."""
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: _mapped(value, change) for key, value in tree.items()}
    return [_mapped(value, change) for value in tree] if isinstance(tree, list) else tree


def _renamed(tree: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tree with names in place of Python's keywords."""
    steps, problems = tree.get("steps"), []
    if isinstance(steps, dict):
        for name, step in steps.items():
            if isinstance(step, dict):
                problems += [f"steps.{name}.{own}: unknown key" for own in _KEYWORDS.values() if own in step]
                steps[name] = {_KEYWORDS.get(key, key): value for key, value in step.items()}
                if isinstance(words := step.get("run"), list):  # numbers are words too
                    texts = [str(word) if isinstance(word, int | float) else word for word in words]
                    steps[name]["run"] = texts
    return tree, problems


def _unknown(section: _File, step: StepSection, needs: Sequence[str]) -> Iterator[str]:
    """References to nothing."""
    known = [*section.inputs, *section.steps]
    for need in needs:
        if need not in known:
            allowed = ", ".join([*known, *_OWN])
            yield f"{{{need}}}: names no input and no step; allowed are {allowed}, and {{{{ for a brace"
    for need, part in references(step):
        if part is not None and need in section.steps and part not in section.steps[need].outputs:
            yield f"{{{need}.{part}}}: is not among its outputs ({', '.join(section.steps[need].outputs) or 'none'})"
        elif part is not None and need not in section.steps:
            yield f"{{{need}.{part}}}: only a step has parts"


def _ordered(steps: Mapping[str, StepSection], needs: Mapping[str, Sequence[str]]) -> dict[str, StepSection]:
    """The steps, each behind those that it needs, else as they are written."""
    order = {name: number for number, name in enumerate(steps)}
    sorter = graphlib.TopologicalSorter({name: [one for one in needs[name] if one in steps] for name in steps})
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise ConfigError(
            [f"steps: {' needs '.join(reversed(error.args[1]))}: a circle; take one need away"]
        ) from error
    done: list[str] = []
    ready: list[str] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=order.__getitem__)
        done.append(ready.pop(0))
        sorter.done(done[-1])
    return {name: steps[name] for name in done}
