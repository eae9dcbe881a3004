"""Makes a batch script: `#SBATCH` lines, what is given as words of bash, and a template in which nothing is filled in.

Each value is quoted once, and refused if it holds a control character: a line break could begin a line of its own.
"""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

from configs import UserError
from launcher.slurm.profile import Profile

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:@=-]{0,127}")
_NODES = re.compile(r"([1-9][0-9]{0,5}-)?[1-9][0-9]{0,5}")


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """What all jobs have."""

    folder: str
    """The folder in which it runs; absolute."""
    name: str
    """In the queue."""
    logs: str
    """The folder for what it prints; absolute."""
    after: int | None = None
    """A job that must succeed first."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of the job, in addition to the site profile's."""


def render_training(
    site: Profile, job: Job, *, nodes: str, lead: int, limits: Sequence[str], **words: str | Sequence[str]
) -> str:
    """The batch script of a training.

    Args:
        site: its profile.
        job: what all jobs have.
        nodes: a number, or MIN-MAX.
        lead: seconds between the warning and the time limit.
        limits: options of `launcher.slurm.decide`.
        words: `config`, `run`, `overrides` and `node_options` of `zeromt launch node`.

    Raises:
        UserError: a value that must not be in a script; the message names it.
    """
    options = {"nodes": nodes, "ntasks-per-node": 1, "signal": f"B:USR1@{lead}"}
    return _render("train.sh", site, job, options, {"limits": limits, **words}, has_gpus=True)


def render_command(site: Profile, job: Job, words: Sequence[str], *, parts: int | None = None) -> str:
    """The batch script of a command of one task, or of one that each task of an array runs.

    Args:
        site: its profile.
        job: what all jobs have.
        words: the command; the word `zeromt` in front is the profile's Python with zeromt.
        parts: tasks of an array; None for one.

    Raises:
        UserError: a value that must not be in a script; the message names it.
    """
    options = {"nodes": 1, "ntasks": 1, "array": parts and f"1-{parts}"}
    program = [python_of(site), "-P", "-m", "zeromt"] if words[0] == "zeromt" else words[:1]
    computes = words[:2] != ["zeromt", "prepare"] and "--merge" not in words[2:3]
    return _render("command.sh", site, job, options, {"words": [*program, *words[1:]]}, has_gpus=computes)


def most_nodes(text: str) -> int:
    """The largest number of nodes in N or MIN-MAX.

    Raises:
        UserError: it is neither.
    """
    least, _, most = text.rpartition("-")
    if not _NODES.fullmatch(text) or int(least or 1) > int(most):
        raise UserError(f"--nodes: {text!r}; allowed is a number from 1, or MIN-MAX such as 2-8")
    return int(most)


def python_of(site: Profile) -> str:
    """The interpreter that jobs run."""
    return site.python or ("python3" if site.container != "none" else sys.executable)


def log_of(job: Job) -> str:
    """The path of a job's log without its number and suffix."""
    return f"{job.logs}/{job.name}"


def _render(
    template: str,
    site: Profile,
    job: Job,
    options: Mapping[str, object],
    words: Mapping[str, str | Sequence[str]],
    *,
    has_gpus: bool,
) -> str:
    if not _NAME.fullmatch(job.name):
        raise UserError(f"--job-name: {job.name!r}; allowed are letters, digits and _.+:@=-, at most 128")
    number = "%A_%a" if options.get("array") else "%j"
    own: dict[str, object] = {
        "job-name": job.name,
        "chdir": job.folder,
        "output": f"{log_of(job).replace('%', '%%')}-{number}.out",
        "open-mode": "append",
        "time": site.time,
        "cpus-per-task": site.cpus_per_node,
        **options,
        "requeue" if site.max_requeues else "no-requeue": True,
        "dependency": job.after and f"afterok:{job.after}",
        "kill-on-invalid-dep": job.after and "yes",
    }
    container, step_options = _container(site)
    values: dict[str, str | Sequence[str]] = {
        **words,
        "log": log_of(job),
        "python": python_of(site),
        "modules": site.modules,
        "sources": site.source,
        "environment": [f"{name}={value}" for name, value in {**site.environment, **job.variables}.items()],
        "container": container,
        "step_options": step_options,
        "once": ["srun", "--export=ALL", "--nodes=1", "--ntasks=1", "--relative=0", *step_options]
        if step_options
        else [],
    }
    asked = {**own, **_sbatch(site, has_gpus=has_gpus)}
    lines = [_directive(name, value) for name, value in asked.items() if value is not None and value is not False]
    given = [f"{name}={_words(name, value)}" for name, value in values.items()]
    texts = [resources.files("launcher.slurm").joinpath(name).read_text() for name in ("site.sh", template)]
    made = f"# Made by `zeromt launch slurm` of launcher/slurm/site.sh and {template}."
    return "\n".join(["#!/bin/bash", *lines, made, "", *given, "", *texts])


def _directive(option: str, value: object) -> str:
    """The line of an option. sbatch reads quotes as a shell does, but takes a backslash within them, too."""
    text = str(value).replace("\\", "\\\\")
    return f"#SBATCH --{option}" if value is True else f"#SBATCH --{option}={_quoted(option, text)}"


def _words(name: str, value: str | Sequence[str]) -> str:
    """A value as one word of bash, or several as an array."""
    return _quoted(name, value) if isinstance(value, str) else f"({' '.join(_quoted(name, one) for one in value)})"


def _quoted(name: str, value: str) -> str:
    if _CONTROL.search(value):
        raise UserError(f"{name}: {value!r}; allowed is text without line breaks and control characters")
    return shlex.quote(value)


def _sbatch(site: Profile, *, has_gpus: bool) -> dict[str, object]:
    """The profile's options of sbatch, with GPUs if the job takes any."""
    asked = {name for name in site.sbatch if name == "gres" or name.startswith("gpu")}
    if not (has_gpus and site.gpus_per_node):
        return {name: value for name, value in site.sbatch.items() if name not in asked}
    return {**({} if asked else {"gpus-per-node": site.gpus_per_node}), **site.sbatch}


def _container(site: Profile) -> tuple[list[str], list[str]]:
    """The container command before the interpreter, and options of srun."""
    image, mounts = site.container_image or "", site.container_mounts
    if site.container == "apptainer":
        binds = [word for mount in mounts for word in ("--bind", mount)]
        return ["apptainer", "exec", *(["--nv"] if site.gpus_per_node else []), *binds, image], []
    if site.container == "pyxis":
        return [], [f"--container-image={image}", *([f"--container-mounts={','.join(mounts)}"] if mounts else [])]
    return [], []
