"""Hypothesis strategies of calls: every option of every command, and every field of the configuration, as they are now.

Both are walked and not listed: a new option or field is called with odd values from the day on which it is there.
"""

import argparse
import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import strategies as st

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
    ),
    "status": (places.RUN,),
    "stop": (places.RUN, "--no-wait"),
    "log": (places.RUN,),
    "translate": (places.RUN, "-i", places.TEXTS[0]),
    "evaluate": (places.RUN, "--source", places.TEXTS[1], "--reference", places.TEXTS[2]),
    "score": (places.DATASET, "--run", places.RUN),
    "export": (places.RUN, "--format=ctranslate2", "-o", "out/new"),
    "average": (places.RUN, "--last=2", "-o", "out/new"),
    "import": ("--huggingface=hf-marian", "-o", "out/new"),
    "plan": ("small.yaml", "--nodes=1", "--gpus-per-node=2", "--gpu-memory=80GB"),
    "inspect": (places.RUN,),
    "pipeline": ("pipeline.yaml", "--dry-run"),
    "compare": (places.RUN, places.RUN, "--bootstrap", "20", "--randomisation", "20"),
    "report": (places.RUN,),
    "doctor": ("small.yaml", "seed=-1"),  # refused, as all that it looks at takes long
}
"""A call that is right. A command that is not here is called with whatever is drawn."""
SETTINGS = ("training.max_updates=11", "evaluation.max_pairs=2")
"""Of calls that train: one update more than the run has."""
NEW_RUN = ("name=new", "training.max_updates=2", "evaluation.max_pairs=2")
OUTPUTS = st.sampled_from(("out", "closed", "full", "gone", "read-only"))
STREAMS = st.tuples(st.sampled_from(("null", "text", "binary", "write-only", "closed")), OUTPUTS, OUTPUTS)
RANKS = ("train", "launch local", "launch node")
SAMPLES = {
    bool: ("true", "false"),
    int: ("0", "1", "2", "3", "16", "64"),
    float: ("0.0", "0.5", "1.0", "2.0", "1e-9"),
    types.NoneType: ("null",),
}


def fields(type_: Any = RunConfig, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of the configuration, sections too, by its path."""
    for f in dataclasses.fields(type_):
        yield where + f.name, f.type
        if dataclasses.is_dataclass(f.type):
            yield from fields(f.type, f"{where}{f.name}.")


FIELDS = dict(fields())


def actions(command: str) -> list[argparse.Action]:
    """Every argument of a command."""
    parser = Parser(prog="fuzz", add_help=True)
    COMMANDS[command].add_arguments(parser)
    return parser.arguments


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A call that is right but for one to three changes; what trains ends soon."""
    command = draw(st.sampled_from(list(COMMANDS)))
    argv, files = list(DEFAULTS.get(command, ())), dict[str, str]()
    changes = [_add_option, _change_word]
    changes += [_change_field, _change_field, _change_file] if "small.yaml" in argv else [_add_option]
    for _ in range(draw(st.integers(1, 3))):
        draw(st.sampled_from(changes))(draw, command, argv, files)
    end = draw(st.sampled_from((SETTINGS, NEW_RUN))) if command in RANKS else ()
    names = draw(st.just([]) | st.lists(st.sampled_from(sorted(ENVIRONMENT)), max_size=2))
    return Call(
        argv=(*command.split(), *argv, *end),
        files=files,
        environment={name: draw(st.sampled_from(ENVIRONMENT[name])) for name in names},
        streams=draw(st.just(Call.streams) | st.just(Call.streams) | STREAMS),
    )


def _add_option(draw: st.DrawFn, command: str, argv: list[str], _: dict[str, str]) -> None:
    """An option with a value; a positional argument in place of the first."""
    action = draw(st.sampled_from(actions(command)))
    value = draw(_argument(action))
    if not action.option_strings:
        argv[:1] = [value]
        return
    name = draw(st.sampled_from(action.option_strings))
    shapes = (
        ([name],) if action.nargs == 0 else ([name, value], [f"{name}={value}" if name[:2] == "--" else name + value])
    )
    argv += draw(st.sampled_from(shapes))


def _argument(action: argparse.Action) -> st.SearchStrategy[str]:
    """Values of an option: names of files where such are wanted, words and numbers elsewhere; and odd ones."""
    if action.dest in ("nproc", "processes", "nnodes", "prepare", "chain"):
        return st.sampled_from(FEW)
    right = [str(choice) for choice in action.choices or ("1", "2", "3", "0.5", "x")]
    if action.metavar in ("FILE", "RUN", "PATH", "DIR", "CONFIG", "STATE", "MODEL"):
        right = [places.RUN, places.CHECKPOINT, places.DATASET, *places.TEXTS, "link-to-run", "link-to-text", "text.gz"]
    if {*action.option_strings} & {*OUTPUT_OPTIONS}:
        right = [*places.OUTPUTS, *places.TEXTS]
    return st.sampled_from(right) | st.sampled_from([*right, *TEXT, *places.ODD])


def _change_field(draw: st.DrawFn, command: str, argv: list[str], files: dict[str, str]) -> None:
    """A field of the configuration, of those of `prepare` where they count."""
    mine = [path for path in FIELDS if command != "prepare" or path.startswith("prepare.")]
    path = draw(st.sampled_from(mine))
    if path.endswith(("workers", "threads")):
        value = draw(st.sampled_from(FEW))
    else:
        odd = st.sampled_from((*TEXT, *places.ODD)) | st.integers().map(str) | st.floats().map(str)
        right = _right(FIELDS[path])
        value = draw(st.sampled_from(right) | odd if right else odd)
    shapes = ("{}={}",) * 10 + ("{}[0]={}", "{}.x={}", "{}.0={}", "{}x={}", "{}", "{}[={}", "={1}", "{}==={}")
    argv.append(draw(st.sampled_from(shapes)).format(path, value))


def _right(type_: Any) -> list[str]:
    """Some values of a type, small where they are numbers."""
    inner = typing.get_args(type_)
    match typing.get_origin(type_):
        case typing.Literal:
            return [json.dumps(value) for value in inner]
        case typing.Annotated:
            return _right(inner[0])
        case typing.Union | types.UnionType:
            return [value for one in inner for value in _right(one)]
        case _ if inner:
            return [f"[{value}]" for value in _right(inner[0])]
    return list(SAMPLES.get(type_, ()))


def _change_file(draw: st.DrawFn, _: str, argv: list[str], files: dict[str, str]) -> None:
    """Another file in place of `small.yaml`, or another section in it."""
    tree = yaml.safe_load((FILES / "small.yaml").read_text())
    names = st.sampled_from(sorted({name for path in FIELDS for name in path.split(".")}))
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(TEXT).filter(str.isprintable)
    trees = st.recursive(
        leaves, lambda t: st.lists(t, max_size=2) | st.dictionaries(names, t, max_size=2), max_leaves=4
    )
    tree[draw(names)] = draw(trees)
    files["odd.yaml"] = draw(st.sampled_from(DOCUMENTS) | st.just(yaml.safe_dump(tree, allow_unicode=True)))
    argv[:] = ["odd.yaml" if word == "small.yaml" else word for word in argv]


def _change_word(draw: st.DrawFn, _: str, argv: list[str], files: dict[str, str]) -> None:
    """A word replaced, taken away or doubled."""
    if argv:
        place = draw(st.integers(0, len(argv) - 1))
        word = draw(st.sampled_from((*places.ODD, *TEXT)))
        argv[place : place + 1] = draw(st.sampled_from(([word], [], [argv[place]] * 2)))
