"""Renders a batch script from a site's profile and a run: pure functions over reviewed templates.

What the scheduler reads itself, the `#SBATCH` lines, takes words of a narrow pattern and paths in single quotes. All
the rest are words of bash arrays, quoted by `shlex.quote`. Control characters are refused everywhere: a line break in
a value could begin a line of its own.
"""

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources

from configs import UserError
from launcher.slurm.jobs import Array, Job, Single, Training
from launcher.slurm.profile import Profile, format_time, parse_time

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:@=-]{0,127}")
_HOLE = re.compile(r"@([A-Z_]+)@")
_NODES = re.compile(r"([1-9][0-9]{0,5})(?:-([1-9][0-9]{0,5}))?")
_NOT_IN_PATHS = "'\"\\%#"
"""Quotes, and the characters that SLURM interprets in the name of an output file."""


@dataclass(slots=True)
class _Directives:
    """The `#SBATCH` lines."""

    lines: list[str] = field(default_factory=list)

    def add(self, option: str, value: object = True) -> None:
        """Add one line, unless the value is empty."""
        if value is True:
            self.lines.append(f"#SBATCH --{option}")
        elif value is not None and value is not False:
            self.lines.append(f"#SBATCH --{option}={value}")


def render_training(site: Profile, job: Training, *, output: str, lead: int) -> str:
    """The batch script of a training.

    Args:
        site: its profile.
        job: what is to run.
        output: file for the job's output, with SLURM's patterns for its number; its folder must exist.
        lead: seconds between the warning and the time limit.

    Raises:
        UserError: a value that must not be in a script; the message names the field.
    """
    lines = _common_directives(site, job, output)
    lines.add("nodes", check_nodes(job.nodes))
    lines.add("nodelist", site.nodelist and f"'{site.nodelist}'")
    lines.add("ntasks-per-node", 1)
    _add_gpus(lines, site)
    lines.add("signal", f"B:USR1@{lead}")
    lines.add("requeue" if site.requeue and job.num_links == 1 else "no-requeue")
    node_options = [
        *([] if job.nproc is None else ["--nproc", str(job.nproc)]),
        *("--max-restarts", str(job.max_restarts)),
        *("--join-timeout", str(site.join_timeout)),
        *("--node-timeout", str(site.node_timeout)),
        *(["--interface", site.interface] if site.interface else []),
        *([] if job.parent is None else ["--from", job.parent]),
    ]
    return _fill(
        "train.sh",
        _common_values(site, job, lines)
        | {
            "CONFIG": _word("CONFIG", job.config),
            "OVERRIDES": _words("override", job.overrides),
            "RUN": _word("run", job.run),
            "NODE_OPTIONS": _words("node", node_options),
            "LINK": str(job.link),
            "MAX_REQUEUES": str(site.max_requeues if site.requeue and job.num_links == 1 else 0),
            "PORT_BASE": str(site.port_base),
        },
    )


def render_array(site: Profile, job: Array, *, output: str) -> str:
    """The batch script of an array's tasks, or of their merge.

    Args:
        site: its profile.
        job: what is to run.
        output: as of `render_training`.

    Raises:
        UserError: a value that must not be in a script; the message names the field.
    """
    lines = _common_directives(site, job, output)
    lines.add("nodes", 1)
    lines.add("ntasks", 1)
    lines.add("array", None if job.is_merge else f"1-{job.parts}")
    if job.takes_gpus:
        _add_gpus(lines, site)
    lines.add("requeue" if site.requeue else "no-requeue")
    own = {"WORDS": _words("command", job.words), "PARTS": str(job.parts)}
    return _fill("array.sh", _common_values(site, job, lines) | own)


def render_command(site: Profile, job: Single, *, output: str) -> str:
    """The batch script of one command.

    Args:
        site: its profile.
        job: what is to run.
        output: as of `render_training`.

    Raises:
        UserError: a value that must not be in a script; the message names the field.
    """
    lines = _common_directives(site, job, output)
    lines.add("nodes", 1)
    lines.add("ntasks", 1)
    _add_gpus(lines, site)
    lines.add("requeue" if site.requeue else "no-requeue")
    program = [_python(site), "-P", "-m", "zeromt"] if job.words[0] == "zeromt" else job.words[:1]
    own = {
        "WORDS": _words("command", [*program, *job.words[1:]]),
        "STDOUT": _word("stdout", job.stdout),
    }
    return _fill("command.sh", _common_values(site, job, lines) | own)


def check_nodes(text: str) -> str:
    """Check a number of nodes, or MIN-MAX.

    Raises:
        UserError: it is neither.
    """
    match = _NODES.fullmatch(text)
    if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
        raise UserError(f"--nodes: {text!r}; allowed is a number from 1, or MIN-MAX such as 2-8")
    return text


def most_nodes(text: str) -> int:
    """The larger number of `check_nodes`."""
    return int(check_nodes(text).rpartition("-")[2])


def _add_gpus(lines: _Directives, site: Profile) -> None:
    if site.gpus_per_node:
        parts = ("gpu" if site.gpu_request == "gres" else None, site.gpu_type, str(site.gpus_per_node))
        lines.add(site.gpu_request, ":".join(filter(None, parts)))


def _python(site: Profile) -> str:
    return site.python or ("python3" if site.container != "none" else sys.executable)


def _common_directives(site: Profile, job: Job, output: str) -> _Directives:
    if not _NAME.fullmatch(job.name):
        raise UserError(f"--job-name: {job.name!r}; allowed are letters, digits and _.+:@=-, at most 128")
    lines = _Directives()
    lines.add("job-name", job.name)
    lines.add("chdir", _path("the current folder", job.folder))
    lines.add("output", _path("output", output.replace("%j", "").replace("%A_%a", "")) and f"'{output}'")
    lines.add("open-mode", "append")
    lines.add("time", format_time(parse_time(site.time)))
    lines.add("partition", site.partition)
    lines.add("account", site.account)
    lines.add("qos", site.qos)
    lines.add("constraint", None if site.constraint is None else f"'{site.constraint}'")
    lines.add("reservation", site.reservation)
    lines.add("exclude", site.exclude and f"'{site.exclude}'")
    lines.add("licenses", site.licenses)
    lines.add("mail-user", site.mail_user)
    lines.add("mail-type", ",".join(site.mail_type) or None)
    lines.add("cpus-per-task", site.cpus_per_node)
    lines.add("mem", site.memory)
    lines.add("exclusive", site.exclusive)
    if job.after is not None:
        lines.add("dependency", f"afterok:{job.after}")
        lines.add("kill-on-invalid-dep", "yes")
    return lines


def _common_values(site: Profile, job: Job, directives: _Directives) -> dict[str, str]:
    container, srun_options = _container(site)
    environment = {**site.environment, **job.variables}
    return {
        "DIRECTIVES": "\n".join(directives.lines),
        "PYTHON": _word("python", _python(site)),
        "MODULES": _words("modules", site.modules),
        "SOURCES": _words("source", site.source),
        "ENVIRONMENT": _words("environment", [f"{name}={value}" for name, value in environment.items()]),
        "CONTAINER": _words("container", container),
        "SRUN_OPTIONS": _words("container", srun_options),
    }


def _container(site: Profile) -> tuple[list[str], list[str]]:
    """The container command before the interpreter, and options of srun."""
    image = site.container_image or ""
    if site.container == "apptainer":
        binds = [word for mount in site.container_mounts for word in ("--bind", mount)]
        return ["apptainer", "exec", *(["--nv"] if site.gpus_per_node else []), *binds, image], []
    if site.container == "pyxis":
        mounts = [f"--container-mounts={','.join(site.container_mounts)}"] if site.container_mounts else []
        return [], [f"--container-image={image}", *mounts]
    return [], []


def _fill(template: str, values: dict[str, str]) -> str:
    """Fill the template's holes in one pass, so that holes in values are not filled; all share what site.sh does."""
    text, site = map(_template, (template, "site.sh"))
    return _HOLE.sub(lambda hole: values[hole[1]], text.replace("@SITE@\n", site))


def _template(name: str) -> str:
    return resources.files("launcher.slurm").joinpath(name).read_text(encoding="utf-8")


def _words(field_name: str, values: Sequence[str]) -> str:
    return " ".join(_word(field_name, value) for value in values)


def _word(field_name: str, value: str) -> str:
    """A value as one word of the shell.

    Raises:
        UserError: it holds a control character.
    """
    if _CONTROL.search(value):
        raise UserError(f"{field_name}: {value!r}; allowed is text without line breaks and control characters")
    return shlex.quote(value)


def _path(field_name: str, value: str) -> str:
    """A path for an `#SBATCH` line.

    Raises:
        UserError: it contains a character that cannot be quoted there.
    """
    bad = sorted({c for c in value if c in _NOT_IN_PATHS or _CONTROL.match(c)})
    if bad:
        raise UserError(f"{field_name}: {value!r} holds {bad[0]!r}; allowed are paths without quotes, \\, % and #")
    return f"'{value}'"
