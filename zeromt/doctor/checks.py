"""What `zeromt doctor` looks at: devices, packages, limits, disks, clocks and data."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from configs import RunConfig
from configs.errors import UserError
from configs.process.files import describe
from configs.process.gpus import INSTEAD, REMEDY, num_gpus

MIN_FREE_BYTES = 1 << 30
"""Less free space than this is doubtful: a checkpoint takes 12 bytes per parameter, and the weights a second time."""
MIN_OPEN_FILES = 1024
"""Linux's default limit. Each rank keeps shards, logs, sockets and libraries open."""
MIN_SHARED_BYTES = 256 << 20
"""NCCL needs tens of MB per GPU and crashes with a bus error if there are fewer; a container has 64 MiB by default."""
MAX_SKEW_SECONDS = 2.0
"""Locks, time limits and heartbeats compare time stamps of files with the clock of the machine that reads them."""

Grade = Literal["good", "doubt", "fault"]


@dataclass(slots=True, frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    grade: Grade
    """A fault fails a run or makes its results wrong; a doubt may do so."""
    said: str
    """What was found."""
    fix: str = ""
    """What to do about it; empty if nothing is wrong."""


def findings_of(subject: str, check: Callable[[], str]) -> Iterator[Finding]:
    """The findings of a check, which describes what is there, or raises UserError: an error for each of its lines.

    The part of a line after the last semicolon says what to do.
    """
    try:
        yield Finding(subject, "good", check())
    except UserError as error:
        for line in str(error).splitlines():
            said, _, fix = line.rpartition("; ")
            yield Finding(subject, "fault", said or line, fix if said else "see there")


def devices(environ: Mapping[str, str]) -> Finding:
    """Whether torch can use the GPUs, as it says itself."""
    gpus = num_gpus(environ)
    if not gpus:
        return Finding("devices", "good", "no GPU visible; ranks compute on the CPU")
    command = [sys.executable, "-c", "import torch; torch.cuda.init()"]
    asked = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    if asked.returncode:
        reason = asked.stderr.strip().rpartition("\n")[2]
        return Finding("devices", "fault", f"{gpus} GPU(s), and torch: {reason}", f"{REMEDY}, {INSTEAD}")
    return Finding("devices", "good", f"{gpus} GPU(s), which torch can use")


def packages() -> Iterator[Finding]:
    """Whether every required package is installed in an allowed version."""
    try:
        needs = [Requirement(text) for text in metadata.requires("zeromt") or ()]
    except metadata.PackageNotFoundError:
        yield Finding("packages", "doubt", "zeromt is not installed here", "`make install`, or `pip install zeromt`")
        return
    needs = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    wrong = [finding for need in needs for finding in _package(need)]
    yield from wrong
    if not wrong:
        yield Finding("packages", "good", f"{len(needs)} requirements are met: torch {metadata.version('torch')}")


def _package(need: Requirement) -> Iterator[Finding]:
    try:
        version = metadata.version(need.name)
    except metadata.PackageNotFoundError:
        version = ""
    if not version or not need.specifier.contains(version, prereleases=True):
        said = f"{need.name} {version or 'is missing'}; zeromt requires {need.specifier or 'it'}"
        yield Finding("packages", "fault", said, f"pip install '{need.name}{need.specifier}'")


def shared_memory(place: Path = Path("/dev/shm"), *, gpus: int) -> Finding:
    """Whether there is enough shared memory for NCCL: a fault only with several GPUs, since CPU ranks need none."""
    try:
        with tempfile.TemporaryFile(dir=place):
            disk = os.statvfs(place)
    except OSError as error:
        said, free = describe(error), 0
    else:
        free = disk.f_bavail * disk.f_frsize
        said = f"{place}: {free / 1e9:.2f} GB free"
    if free >= MIN_SHARED_BYTES:
        return Finding("shared memory", "good", said)
    fix = "docker run --shm-size=1g (Kubernetes: an emptyDir with medium Memory); mount -o remount,size=1g /dev/shm"
    return Finding("shared memory", "fault" if gpus > 1 else "doubt", said, fix)


def open_files() -> Finding:
    """Whether the limit of open files is high enough."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES:
        return Finding("open files", "good", f"{'any number' if soft == resource.RLIM_INFINITY else soft} at once")
    fix = "ulimit -n 65536; if that is refused, raise nofile in /etc/security/limits.conf, or use docker --ulimit"
    return Finding("open files", "fault", f"{soft} at once; ranks need {MIN_OPEN_FILES}", fix)


def folders(run: RunConfig | None) -> Iterator[Finding]:
    """Whether the folders of the run, of the prepared dataset and of temporary files can be written."""
    wanted = {"TMPDIR": tempfile.gettempdir()}
    if run is not None:
        wanted["output"] = run.folder
        wanted |= {} if "://" in run.prepare.output else {"prepare.output": run.prepare.output}
    for what, folder in wanted.items():
        yield from _folder(what, Path(folder).absolute())


def _folder(what: str, folder: Path, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    place = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        before = now()
        with tempfile.NamedTemporaryFile(dir=place, prefix=".zeromt-doctor-") as file:
            theirs, disk = Path(file.name).stat().st_mtime, os.statvfs(place)
    except OSError as error:
        fix = f"name another folder ({what}=), or fix this one's owner, permissions or file system"
        yield Finding("folders", "fault", f"{what}: {str(place)!r} cannot be written: {describe(error)}", fix)
        return
    skew = max(before - theirs, theirs - now(), 0.0)
    if skew > MAX_SKEW_SECONDS:
        fix = "synchronise both by NTP: `timedatectl set-ntp true`, or `chronyc makestep`"
        yield Finding("clock", "fault", f"{skew:.0f} s off the clock of the file system of {place}", fix)
    free = disk.f_bavail * disk.f_frsize
    said = f"{what}: {place} can be written, {free / 1e9:.1f} GB free"
    if free < MIN_FREE_BYTES:
        fix = f"delete old checkpoints, keep fewer (checkpoint.keep_last), or name another folder ({what}=)"
        yield Finding("folders", "doubt", said, fix)
    else:
        yield Finding("folders", "good", said)
