"""Checks of the machine: cores, memory, devices, environment variables, limits, host names, clock, packages."""

import contextlib
import os
import platform
import resource
import shutil
import socket
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from configs.errors import UserError
from configs.process.environment import check_process
from configs.process.files import describe
from configs.process.gpus import (
    INSTEAD,
    REMEDY,
    describe_driver,
    driver_cuda,
    gpus_to_use,
    num_gpus,
    torch_build,
    why_unusable,
)
from configs.process.text import visible
from launcher.machine.cores import num_cores
from zeromt.doctor.finding import Finding, doubt, fault, findings_of, good, refused

MIN_OPEN_FILES = 1024
"""Linux's default limit. Each rank keeps shards, logs, sockets and libraries open."""
MIN_SHARED_BYTES = 256 << 20
"""NCCL needs tens of MB per GPU and crashes with a bus error if there are fewer; a container has 64 MiB by default."""
MAX_SKEW_SECONDS = 2.0
"""Locks, time limits and heartbeats compare time stamps of files with the clock of the machine that reads them."""
LOOK_SECONDS = 0.5
"""For which processors are looked at."""
MIN_BUSY, MAX_BUSY_FRACTION = 0.5, 0.1
"""Other programs are told of from half a processor on, or a tenth of many."""
_GB = 1e9


def hardware() -> Iterator[Finding]:
    """Whether there is enough free memory; reports the cores too."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines() if Path("/proc/meminfo").exists() else []
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    total, free = (1024 * kilobytes.get(name, 0) / _GB for name in ("MemTotal", "MemAvailable"))
    said = (
        f"{num_cores()} cores, {total:.1f} GB of memory, {free:.1f} GB free, {platform.system()} {platform.release()}"
    )
    if total and free < 1:
        yield doubt("machine", said, "stop other programs: a rank needs about 1 GB of memory besides its model")
    else:
        yield good("machine", said)


def load(sample: Callable[[], float] | None = None, processors: int | None = None) -> Iterator[Finding]:
    """Whether other programs compute here: they would slow a run down, and make every measurement wrong.

    Args:
        sample: the fraction of the time in which processors were busy; None looks for half a second.
        processors: of this machine, those that this process may not use too.
    """
    number = processors or os.cpu_count() or 1
    busy = number * (psutil.cpu_percent(interval=LOOK_SECONDS) / 100 if sample is None else sample())
    said = f"{busy:.1f} of {number} processors busy"
    if busy >= max(MIN_BUSY, MAX_BUSY_FRACTION * number):
        who = ", ".join(_busiest()) if sample is None else ""
        mend = "before you measure, wait or stop other programs (`top`); OMP_NUM_THREADS leaves them processors"
        yield doubt("load", f"{said}{f': {who}' if who else ''}", mend)
    else:
        yield good("load", said)


def _busiest() -> list[str]:
    """The programs that compute most, by name and number."""
    there = list(psutil.process_iter(["name"]))
    for process in there:
        with contextlib.suppress(psutil.Error):
            process.cpu_percent()  # the first call begins to measure
    time.sleep(LOOK_SECONDS)
    shares = []
    for process in there:
        with contextlib.suppress(psutil.Error):
            shares.append((process.cpu_percent() / 100, f"{process.info['name']} ({process.pid})"))
    return [f"{visible(name)} {share:.1f}" for share, name in sorted(shares, reverse=True)[:3] if share >= MIN_BUSY / 2]


def environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the environment variables that ranks read are valid."""

    def check_variables() -> str:
        check_process(environ)
        return "the variable for devices is valid"

    yield from findings_of("environment", check_variables)


def devices(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether torch can use the GPUs: its build must fit their driver."""
    build, gpus = torch_build(), num_gpus(environ)
    if build is None:
        yield doubt("torch", "not found, or not built for CPUs or CUDA", "`make install`, or `pip install torch`")
        return
    cuda = "CPUs" if build.cuda is None else f"CUDA {build.cuda[0]}.{build.cuda[1]}"
    if not gpus:
        yield good("devices", f"no GPU visible; ranks compute on the CPU (torch {build.version}, built for {cuda})")
    elif (reason := why_unusable()) is not None:
        yield fault("devices", f"{gpus} GPU(s), and {reason}", f"{REMEDY}, {INSTEAD}")
    else:
        said = f"{gpus} GPU(s), {describe_driver()}; torch {build.version}, built for {cuda}"
        driver = driver_cuda()
        if driver is not None and build.cuda is not None and driver < build.cuda:  # of one major version: it runs
            mend = "it runs; if a kernel fails with an unsupported PTX version or toolchain, update the driver"
            yield doubt("devices", said, mend)
        else:
            yield good("devices", said)


def asked_device(device: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the device that `engine.device` asks for can be used."""
    try:
        gpus_to_use(device, environ)
    except UserError as error:
        yield from refused("engine.device", error)


def kernels(environ: Mapping[str, str], headers: Path | None = None, *, gpus: int) -> Iterator[Finding]:
    """Whether Triton can compile what starts its kernels; without, a run takes PyTorch's own, which are slower.

    Args:
        environ: of the ranks.
        headers: Python's; None for those of this interpreter.
        gpus: number of GPUs that ranks can use; without one, nothing is compiled.
    """
    if not gpus:
        return
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # as Triton does on Debian
    headers = headers or Path(sysconfig.get_path("include", scheme))
    asked = [environ["CC"]] if environ.get("CC") else ["gcc", "clang"]
    compiler = next(filter(None, (shutil.which(name, path=environ.get("PATH")) for name in asked)), None)
    if compiler is None:
        yield doubt("kernels", f"no C compiler ({' or '.join(asked)})", "install gcc, or name a compiler in CC")
    elif not (headers / "Python.h").is_file():
        yield doubt("kernels", f"no {headers / 'Python.h'}", "install Python's headers (Debian: python3-dev)")
    else:
        yield good("kernels", f"Triton can compile ({compiler})")


def shared_memory(place: Path = Path("/dev/shm"), *, gpus: int) -> Iterator[Finding]:
    """Whether there is enough shared memory for NCCL: a fault only with several GPUs, since CPU ranks need none."""
    wrong = fault if gpus > 1 else doubt
    mend = "docker run --shm-size=1g (Kubernetes: an emptyDir with medium Memory); mount -o remount,size=1g /dev/shm"
    try:
        with tempfile.TemporaryFile(dir=place):
            disk = os.statvfs(place)
    except OSError as error:
        yield wrong("shared memory", describe(error), mend)
        return
    free = disk.f_bavail * disk.f_frsize
    said = f"{place}: {free / _GB:.2f} GB free"
    yield good("shared memory", said) if free >= MIN_SHARED_BYTES else wrong("shared memory", said, mend)


def open_files() -> Iterator[Finding]:
    """Whether the limit of open files is high enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES:
        yield good("open files", f"{'any number' if soft == resource.RLIM_INFINITY else soft} at once")
        return
    can = hard == resource.RLIM_INFINITY or hard >= MIN_OPEN_FILES
    mend = "ulimit -n 65536" if can else "raise the hard limit: nofile in /etc/security/limits.conf, or docker --ulimit"
    yield fault("open files", f"{soft} at once; ranks need {MIN_OPEN_FILES}", mend)


def names(host: str | None = None) -> Iterator[Finding]:
    """Whether `localhost` and this machine's host name resolve quickly; ranks connect by these names."""
    host = socket.gethostname() if host is None else host
    for name, mend in (
        ("localhost", "add `127.0.0.1 localhost` to /etc/hosts"),
        (host, f"add `ADDRESS {host}`, at which other machines reach it, to /etc/hosts, or its name to the DNS"),
    ):
        begin = time.monotonic()
        try:
            addresses = sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None)})
        except OSError as error:
            yield fault("names", f"{name!r} has no address: {error.strerror or error}", mend)
            continue
        seconds = time.monotonic() - begin
        said = f"{name} is {', '.join(addresses)}"
        if seconds > 2:
            yield doubt("names", f"{said}, after {seconds:.0f} s", f"{mend}, or fix the nameserver in /etc/resolv.conf")
        else:
            yield good("names", said)


def clock(folder: Path, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Whether this machine's clock agrees with that of the file system's server.

    Args:
        folder: a folder that can be written.
        now: this machine's clock, in seconds since the epoch.
    """
    try:
        before = now()
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".zeromt-doctor-") as file:
            theirs = Path(file.name).stat().st_mtime
        after = now()
    except OSError:  # `configured.folders` reports it
        return
    skew = max(before - theirs, theirs - after, 0.0)
    if skew > MAX_SKEW_SECONDS:
        mend = "synchronise both by NTP: `timedatectl set-ntp true`, or `chronyc makestep`"
        yield fault("clock", f"{skew:.0f} s off the clock of the file system of {folder}", mend)
    else:
        yield good("clock", f"agrees with the file system of {folder}")


REINSTALL = "install zeromt again: `make install`, or `pip install zeromt`"


def packages(distribution: str = "zeromt") -> Iterator[Finding]:
    """Whether every required package is installed in an allowed version."""
    try:
        needs = [Requirement(text) for text in metadata.requires(distribution) or ()]
    except metadata.PackageNotFoundError:
        yield doubt("packages", "zeromt is not installed here, so its requirements cannot be checked", REINSTALL)
        return
    needs = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    wrong = 0
    for need in needs:
        mend = f"pip install '{need.name}{need.specifier}'"
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            yield fault("packages", f"{need.name} is missing", mend)
        else:
            if need.specifier.contains(version, prereleases=True):
                continue
            yield fault("packages", f"{need.name} {version} is installed; zeromt requires {need.specifier}", mend)
        wrong += 1
    if not wrong:
        yield good("packages", f"{len(needs)} requirements are met: torch {metadata.version('torch')}")
