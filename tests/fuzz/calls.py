"""Hypothesis strategies of calls: every option of every command, and every field of the configuration, as they are now.

Both are walked and not listed: a new option or field is called with odd values from the day on which it is there.
"""

import argparse
import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn as Draw

from configs import RunConfig
from launcher.options.parser import Parser
from tests.fuzz import places
from tests.fuzz.call import OUTPUT_OPTIONS, Call
from tests.small import FILES
from zeromt.cli.main import COMMANDS

TEXT = (
    "", " ", "x", "no", "yes", "on", "null", "~", "true", "false", "0", "1", "-1", "2", "0.5", "-0.0", "1e400",
    "1e-400", ".nan",
    "nan", "inf", "-inf", ".inf", "8:30", "017", "0x10", "1_000", "1,000", "9223372036854775807",
    "9223372036854775808", "1" * 40,
    "1" * 5000, "x" * 5000, "[]", "{}", "[1, 2]", "[[[[]]]]", "{a: 1}", "[null]", "a: b", "'", '"',
    "!!python/object:os.system", "&a *a",
    "*a", "${seed}", "${x}", "${oc.env:HOME}", "???", "2025-01-01", "\u0661", "\uff11", "\u2028", "\x07",
    "\x1b[31m", "e\u0301", "\u202e", "\udce9",
    "new\nline", "- x", "%TAG", "@", "`", "<<: x", "=", "a=b", "13a", "auto", "eng_Latn", ">>fra<<", "data",
    "optimizer,data", "1/2",
    "127.0.0.1:1", "00:10:00", "80GB", "int8",
)  # fmt: skip
"""What may stand where a value is wanted."""
FEW = ("0", "1", "2", "-1", "1.5", "x", "", "auto", "[]", "null")
"""The same where a large number would start as many processes."""
DOCUMENTS = (
    "", "\ufeffname: x\n", "\x00", "- a\n", "1\n", "null\n", "a: [", "name: small\nname: small\n",
    "? [a, b]\n: c\n", "--- a\n--- b\n",
    "1: 2\n", "null: 1\n", "name: ${name}\n", "model: ${model}\n", "preset: [x]\n", "preset: {}\n",
    "seed: !!binary aGk=\n", "\t\n", "\udce9\n",
    "model: {<<: 1}\n", "name: 2025-01-01\n", "true: 1\n", "name: 'a/b'\n", "{" * 300,
)  # fmt: skip
"""Whole configuration files."""
ENVIRONMENT = {
    "RANK": ("x", "-1", "1", "", "0"), "WORLD_SIZE": ("2", "x", "0", ""), "LOCAL_RANK": ("x", "1", "99"),
    "MASTER_PORT": ("x", "0", "99999"),
    "GLOO_SOCKET_IFNAME": ("none0", ""), "NCCL_SOCKET_IFNAME": ("none0",), "OMP_NUM_THREADS": ("x", "0", "1"),
    "COLUMNS": ("x", "0", "1"),
    "HOME": ("", "/nonexistent", "fixed"), "TMPDIR": ("/nonexistent", "fixed", "read-only"), "LANG": ("C", "xx_YY",
    ""), "LC_ALL": ("C",),
    "TZ": ("x", "Mars/Base"), "PYTHONIOENCODING": ("ascii", "latin-1"), "CUDA_VISIBLE_DEVICES": ("x", "", "99"),
    "SLURM_JOB_ID": ("x", ""),
    "SLURM_NODEID": ("x",), "SLURM_PROCID": ("x", "1"), "SLURM_NTASKS": ("x",), "ZEROMT_LAUNCH_ID": ("", "x"),
    "NO_COLOR": ("1",), "TERM": ("", "x"),
    "XDG_CACHE_HOME": ("fixed",), "PATH": ("", "fixed"), "PYTHONWARNINGS": ("error::UserWarning:none",),
}  # fmt: skip
DEFAULTS: dict[str, tuple[str, ...]] = {
    "init": ("corpus/a.en", "corpus/a.fr", "-o", "out/new.yaml"),
    "prepare": ("small.yaml", "prepare.output=made", "prepare.workers=1"),
    "train": ("small.yaml",),
    "launch local": ("small.yaml", "--nproc=1", "--max-restarts=1"),
    "launch slurm": ("small.yaml", "--dry-run"),
    "launch node": (
        "small.yaml",
        "--nproc=1",
        "--nnodes=1",
        "--rendezvous=127.0.0.1:29871",
        "--job-id=x",
        "--join-timeout=3",
    ),
    "status": (places.RUN,),
    "stop": (places.RUN, "--no-wait"),
    "log": (places.RUN,),
    "translate": (places.RUN, "-i", places.TEXTS[0]),
    "evaluate": (places.RUN, "--source", places.TEXTS[1], "--reference", places.TEXTS[2]),
    "score": (places.DATASET, "--run", places.RUN),
    "export": (places.RUN, "--format=safetensors", "-o", "out/new"),
    "average": (places.RUN, "--last=2", "-o", "out/new"),
    "import": ("--huggingface=hf-marian", "-o", "out/new"),
    "plan": ("small.yaml", "--nodes=1", "--gpus-per-node=2", "--gpu-memory=80GB"),
    "inspect": (places.RUN,),
    "pipeline": ("pipeline.yaml", "--dry-run"),
    "compare": (places.RUN, places.RUN, "--bootstrap", "20", "--randomisation", "20"),
    "report": (places.RUN,),
}
"""A call that is right. A command that is not here is called with whatever is drawn."""
SETTINGS = ("training.max_updates=11", "evaluation.max_pairs=2")
"""Of calls that train: one update more than the run has."""
NEW_RUN = ("name=new", "training.max_updates=2", "evaluation.max_pairs=2")
RANKS = ("train", "launch local", "launch node")


def fields(type_: Any = RunConfig, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of the configuration, sections too, by its path."""
    for f in dataclasses.fields(type_):
        yield where + f.name, f.type
        if dataclasses.is_dataclass(f.type):
            yield from fields(f.type, f"{where}{f.name}.")


def actions(command: str) -> list[argparse.Action]:
    """Every argument of a command."""
    parser = Parser(prog="fuzz", add_help=True)
    COMMANDS[command].add_arguments(parser)
    return parser._actions


FIELDS = dict(fields())


@dataclass(frozen=True)
class Target:
    """What a call is about: an option of a command, or a field of the configuration."""

    command: str
    option: str = ""
    """By its `dest`; empty: a field's."""
    field: str = ""


def targets(*, ranks: bool) -> list[Target]:
    """All there are; with `ranks`, for calls that train."""
    commands = [c for c in COMMANDS if (c in RANKS) == ranks or not ranks]
    found = [Target(c, option=a.dest) for c in commands for a in actions(c)]
    carriers = RANKS if ranks else ("plan", "launch slurm", "prepare")
    return found + [Target(carriers[i % len(carriers)], field=path) for i, path in enumerate(FIELDS)]


@st.composite
def calls(draw: Draw, target: Target, *, ranks: bool) -> Call:
    """A call about the target. Those with `ranks` are near enough to right to train for an update or two."""
    command = target.command
    if target.field.startswith("prepare.") and not ranks and draw(st.booleans()):
        command = "prepare"
    argv = list(DEFAULTS.get(command, ()))
    files: dict[str, str] = {}
    is_training = command in RANKS
    if is_training:
        argv += SETTINGS if draw(_one_in(2)) else NEW_RUN
    if target.field:
        _change_field(draw, target.field, argv, files, is_mild=ranks)
    else:
        _add_option(draw, next(a for a in actions(command) if a.dest == target.option), argv)
    for _ in range(0 if ranks else draw(st.sampled_from((0, 0, 0, 1, 1, 2)))):
        _change_more(draw, command, argv, files)
    if is_training and not ranks:  # so that it is refused, and no rank is started
        argv.append(draw(st.sampled_from(("model.d_model=x", "seed=-1", "nonsense=1", "training.max_updates=0"))))
    names = draw(st.lists(st.sampled_from(sorted(ENVIRONMENT)), max_size=2)) if draw(_one_in(5)) else []
    plain = not draw(_one_in(4))
    outputs = ("file", "file", "closed", "full", "gone", "read-only")
    return Call(
        argv=(*command.split(), *argv),
        files=files,
        environment={name: draw(st.sampled_from(ENVIRONMENT[name])) for name in names},
        stdin="null" if plain else draw(st.sampled_from(("null", "closed", "text", "binary", "write-only"))),
        stdout="file" if plain else draw(st.sampled_from(outputs)),
        stderr="file" if plain else draw(st.sampled_from(outputs)),
        starts_ranks=ranks,
    )


def _one_in(number: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([True, *[False] * (number - 1)])


def _change_field(draw: Draw, path: str, argv: list[str], files: dict[str, str], *, is_mild: bool) -> None:
    """A field given on the command line, or in the file."""
    if is_mild:
        argv.append(f"{path}={draw(_values(path, is_mild=True))}")
        return
    if draw(_one_in(4)) and "small.yaml" in argv:
        tree = yaml.safe_load((FILES / "small.yaml").read_text())
        _put(tree, path.split("."), draw(_odd_trees()))
        files["odd.yaml"] = yaml.safe_dump(tree, allow_unicode=True)
        argv[argv.index("small.yaml")] = "odd.yaml"
        return
    shapes = ("{}={}",) * 10 + ("{}[0]={}", "{}.x={}", "{}.0={}", "{}x={}", "{}", "{}[={}", "={1}", "{}==={}")
    argv.append(draw(st.sampled_from(shapes)).format(path, draw(_values(path, is_mild=is_mild))))


def _change_more(draw: Draw, command: str, argv: list[str], files: dict[str, str]) -> None:
    """Another field or option, another file, an argument replaced, taken away or doubled."""
    how = draw(st.integers(0, 9))
    if how <= 3 or not argv:
        _add_option(draw, draw(st.sampled_from(actions(command))), argv)
    elif how <= 5 and "small.yaml" in argv:
        _change_field(draw, draw(st.sampled_from(sorted(FIELDS))), argv, files, is_mild=False)
    elif how == 6 and "small.yaml" in argv:
        files["odd.yaml"] = draw(st.sampled_from(DOCUMENTS))
        argv[argv.index("small.yaml")] = "odd.yaml"
    elif how <= 7:
        argv[draw(st.integers(0, len(argv) - 1))] = draw(st.sampled_from(places.ODD) | st.sampled_from(TEXT))
    elif how == 8:
        del argv[draw(st.integers(0, len(argv) - 1))]
    else:
        argv.insert(draw(st.integers(0, len(argv))), draw(st.sampled_from(argv)))


def _odd_trees() -> st.SearchStrategy[Any]:
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats()
        | st.sampled_from(TEXT).filter(_is_printable)
    )
    return st.recursive(
        leaves,
        lambda t: st.lists(t, max_size=2) | st.dictionaries(st.sampled_from(("a", "path", "0")), t, max_size=2),
        max_leaves=4,
    )


def _is_printable(text: str) -> bool:
    return "\udce9" not in text


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        inner = tree.get(key)
        tree = inner if isinstance(inner, dict) else tree.setdefault(key, {}) if inner is None else {}
    tree[path[-1]] = value


def _values(path: str, *, is_mild: bool) -> st.SearchStrategy[str]:
    """Values of a field as texts: right ones, and odd ones."""
    if path.endswith(("workers", "threads")):
        return st.sampled_from(FEW)
    right = _right(FIELDS[path])
    odd = st.sampled_from(TEXT) | st.sampled_from(places.ODD) | st.integers().map(str) | st.floats().map(str)
    return right if is_mild and right is not None else odd if right is None else right | odd


def _right(type_: Any) -> st.SearchStrategy[str] | None:
    """Values of the type, small where they are numbers; None where only odd ones are known."""
    origin, inner = typing.get_origin(type_), typing.get_args(type_)
    if origin is typing.Literal:
        return st.sampled_from([str(value).lower() if isinstance(value, bool) else str(value) for value in inner])
    if origin is typing.Annotated:
        return _right(inner[0])
    if origin is list:
        one = _right(inner[0])
        one = st.sampled_from(places.ODD).map(json.dumps) if one is None else one
        return st.lists(one, min_size=1, max_size=2).map(lambda found: f"[{', '.join(found)}]")
    if origin is dict:
        return st.sampled_from(
            ("{a: 1}", "{overlap_comm: true}", "{reduce_bucket_size: x}", "{reduce_bucket_size: 64}")
        )
    if dataclasses.is_dataclass(type_):
        path = st.sampled_from((*places.ODD, places.DATASET, places.DATASET)).map(json.dumps)
        return path.map(lambda name: f"{{path: {name}}}")
    if origin in (typing.Union, types.UnionType):
        found = [s for one in inner if (s := _right(one)) is not None]
        return st.one_of(found)
    names: dict[Any, tuple[str, ...]] = {
        bool: ("true", "false"),
        int: ("0", "1", "2", "3", "4", "16", "64"),
        float: ("0.0", "0.5", "1.0", "2.0", "1e-9"),
        types.NoneType: ("null",),
    }
    return st.sampled_from(names[type_]) if type_ in names else None


def _add_option(draw: Draw, action: argparse.Action, argv: list[str]) -> None:
    """An option with a value; a positional argument in place of the first."""
    value = draw(_argument(action))
    if not action.option_strings:
        argv[:1] = [value]
        return
    name = draw(st.sampled_from(action.option_strings))
    if action.nargs == 0:
        argv.append(f"{name}=x" if draw(_one_in(10)) else name)
    elif draw(st.booleans()):
        argv += [name, value]
    else:
        argv.append(f"{name}={value}" if name.startswith("--") else f"{name}{value}")


def _argument(action: argparse.Action) -> st.SearchStrategy[str]:
    """Values of an option: names of files where such are wanted, words and numbers elsewhere; and odd ones."""
    if action.dest in ("nproc", "processes", "nnodes", "prepare", "chain"):
        return st.sampled_from(FEW)
    if action.choices:
        return st.sampled_from([str(choice) for choice in action.choices]) | st.sampled_from(TEXT)
    metavar = str(action.metavar)
    if set(action.option_strings) & set(OUTPUT_OPTIONS):
        return st.sampled_from(places.OUTPUTS) | st.sampled_from(places.TEXTS) | st.sampled_from(places.ODD)
    if metavar in ("FILE", "RUN", "PATH", "DIR", "CONFIG", "STATE", "MODEL"):
        right = (places.RUN, places.CHECKPOINT, places.DATASET, *places.TEXTS, "link-to-run", "link-to-text", "text.gz")
        return st.sampled_from(right) | st.sampled_from(places.ODD)
    return st.sampled_from(("1", "2", "3", "0.5", "x")) | st.sampled_from(TEXT) | st.sampled_from(places.ODD)
