"""Checks that this machine has what a configuration needs: folders, datasets, cores, and packages for its metrics."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from configs import RunConfig
from configs.components import ScoredText
from configs.process.files import describe
from launcher import resolve
from launcher.machine.cores import num_cores
from launcher.start.datasets import check_datasets
from zeromt.doctor.finding import Finding, doubt, fault, findings_of, good

MIN_FREE_BYTES = 1 << 30
"""Less free space than this is doubtful: a checkpoint takes 12 bytes per parameter, and the weights a second time."""


def folders(run: RunConfig | None) -> Iterator[Finding]:
    """Whether the folders of the run, of the prepared dataset and of temporary files can be written."""
    wanted = {"temporary files": Path(tempfile.gettempdir())}
    wanted |= {} if run is None else {"output": Path(run.folder)}
    if run is not None and "://" not in run.prepare.output:
        wanted["prepare.output"] = Path(run.prepare.output)
    for what, folder in wanted.items():
        yield _folder(what, folder)


def existing(folder: Path) -> Path:
    """The folder itself, or its nearest parent that exists (which may be a file)."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _folder(what: str, folder: Path) -> Finding:
    place = existing(folder)
    key = "TMPDIR" if what == "temporary files" else f"{what}="
    mend = f"name another folder ({key}), or fix this one's owner, permissions or file system"
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".zeromt-doctor-") as file:
            file.write(bytes(1 << 16))
            file.flush()
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                said = f"{what}: the file system of {place} does not support locks ({error.strerror})"
                mend = "never start the same run twice at once, or mount it with locks (NFS: without nolock)"
                return doubt("folders", said, mend)
            disk = os.statvfs(place)
    except OSError as error:
        return fault("folders", f"{what}: {str(place)!r} cannot be written: {describe(error)}", mend)
    free = disk.f_bavail * disk.f_frsize
    said = f"{what}: {place} can be written, {free / 1e9:.1f} GB free"
    if free < MIN_FREE_BYTES:
        mend = f"delete old checkpoints, keep fewer (checkpoint.keep_last), or name another folder ({key})"
        return doubt("folders", said, mend)
    return good("folders", said)


def datasets(run: RunConfig, config: str, overrides: Sequence[str], plugins: Sequence[str]) -> Iterator[Finding]:
    """Whether the run's datasets are prepared, and with this configuration."""

    def check() -> str:
        check_datasets(run, config, overrides, plugins)
        return f"prepared: {', '.join(source.path for source in run.datasets)}"

    yield from findings_of("dataset", check)


def threads(environ: Mapping[str, str], *, ranks: int) -> Iterator[Finding]:
    """Whether OMP_NUM_THREADS gives all ranks together more threads than there are cores."""
    asked = environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) * ranks > max(num_cores(), ranks):
        said = f"OMP_NUM_THREADS={asked} for each of {ranks} ranks, on {num_cores()} cores"
        yield doubt("threads", said, "unset it: then the cores are divided among the ranks")


def scores(run: RunConfig | None) -> Iterator[Finding]:
    """Whether the run's metrics can be computed."""
    if run is None:
        return

    def check() -> str:
        text = ScoredText(
            target_language=run.prepare.target_language,
            tokenizer=run.evaluation.tokenizer,
            tokenizer_option="evaluation.tokenizer",
        )
        resolve("trainer.metrics.scoring:Scorer")(run.evaluation.metrics, text)
        return f"{', '.join(metric.label() for metric in run.evaluation.metrics)} can be computed here"

    yield from findings_of("scores", check)
