"""What a configuration needs of this machine: folders, datasets, threads, and what scores are computed with."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from configs import RunConfig
from configs.components import ScoredText
from configs.files import describe
from launcher.agents.datasets import check_datasets
from launcher.dispatch import resolve
from launcher.doctor.finding import Finding, doubt, fault, good, tried
from launcher.machine.hardware import num_cores

LEAST_FREE = 1 << 30
"""A checkpoint holds 12 bytes for each parameter and its weights once more."""


def folders(run: RunConfig | None) -> Iterator[Finding]:
    """Those that are written: the run's, the dataset's, and that of temporary files."""
    wanted = {"temporary files": Path(tempfile.gettempdir())}
    wanted |= {} if run is None else {"output": Path(run.folder)}
    if run is not None and "://" not in run.prepare.output:
        wanted["prepare.output"] = Path(run.prepare.output)
    for what, folder in wanted.items():
        yield _folder(what, folder)


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there, or what is there in its place."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _folder(what: str, folder: Path) -> Finding:
    place = existing(folder)
    key = "TMPDIR" if what == "temporary files" else f"{what}="
    mend = f"name another folder ({key}), or mend this one's owner, rights or file system"
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".zeromt-doctor-") as file:
            file.write(bytes(1 << 16))
            file.flush()
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                said = f"{what}: the file system of {place} has no locks ({error.strerror})"
                return doubt("folders", said, "start no run twice, or mount it with locks (NFS: without nolock)")
            disk = os.statvfs(place)
    except OSError as error:
        return fault("folders", f"{what}: {str(place)!r} cannot be written: {describe(error)}", mend)
    free = disk.f_bavail * disk.f_frsize
    said = f"{what}: {place} can be written, {free / 1e9:.1f} GB free"
    if free < LEAST_FREE:
        return doubt("folders", said, f"free some: old checkpoints, or {key}another folder; checkpoint.keep_last")
    return good("folders", said)


def datasets(run: RunConfig, config: str, overrides: Sequence[str], plugins: Sequence[str]) -> Iterator[Finding]:
    """Whether they are prepared, and by this configuration."""

    def check() -> str:
        check_datasets(run, config, overrides, plugins)
        return f"prepared: {', '.join(source.path for source in run.datasets)}"

    yield from tried("dataset", check)


def threads(environ: Mapping[str, str], *, ranks: int) -> Iterator[Finding]:
    """Threads of all ranks against the cores."""
    asked = environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) * ranks > max(num_cores(), ranks):
        said = f"OMP_NUM_THREADS={asked} for each of {ranks} ranks, on {num_cores()} cores"
        yield doubt("threads", said, "unset it: ranks then share the cores")


def scores(run: RunConfig | None) -> Iterator[Finding]:
    """SacreBLEU's tokenisers, and the models that some of them need."""
    if run is None:
        yield good("scores", str(resolve("trainer.metrics.tokenizers:describe_models")()))
        return

    def check() -> str:
        text = ScoredText(
            target_language=run.prepare.target_language,
            tokenizer=run.evaluation.tokenizer,
            tokenizer_option="evaluation.tokenizer",
        )
        resolve("trainer.metrics.scoring:Scorer")(run.evaluation.metrics, text)
        return f"{', '.join(metric.label() for metric in run.evaluation.metrics)} can be computed here"

    yield from tried("scores", check)
