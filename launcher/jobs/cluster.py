"""What a cluster is: the protocol behind `zeromt launch KIND`, `status`, `stop` and `log`."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from configs import UserError
from configs.components import Component
from launcher.jobs.job import JobState
from launcher.machine.supervise import Supervisor
from launcher.options import Parser


@dataclasses.dataclass(kw_only=True, frozen=True)
class Cluster(Component):
    """A way to run jobs. Its fields are its section of a site's profile; `--set KEY=VALUE` replaces one.

    A cluster that runs a job in the foreground writes `launch`; one with a queue derives from `BatchCluster`. What is
    asked of a job that was submitted (`query`, `stop`, `log`, `reach`) is asked of the fields that stand in the run's
    folder, which may come from anywhere: these run no program that a field names.
    """

    is_foreground: ClassVar[bool] = False
    """Whether `launch` stays until the job has ended; it gets the signals then, through its supervisor."""
    usage: ClassVar[str] = ""
    """Behind `zeromt launch KIND`."""

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """The arguments of `zeromt launch KIND`. One with the name of a field replaces that of the profile."""
        raise NotImplementedError

    def launch(self, supervisor: Supervisor | None, **arguments: Any) -> int:
        """`zeromt launch KIND`.

        Args:
            supervisor: of a cluster in the foreground; its signal handlers are in place.
            arguments: as `add_arguments` names them, without those that are fields.

        Returns:
            0 finished, or submitted; 2 refused; 75 stopped on request after a complete save; 1 anything else.

        Raises:
            UserError: the configuration or an argument is wrong, or the cluster refuses.
        """
        raise NotImplementedError

    def query(self, job: str) -> JobState | None:
        """What the cluster says of a job, within ten seconds; None where it keeps none in mind."""
        return None

    def stop(self, job: str) -> None:
        """End a job that waits, or one that runs and does not see the run's folder that `zeromt stop` writes to.

        Raises:
            UserError: the cluster refuses, or cannot.
        """
        raise UserError(f"RUN: job {job} cannot be ended from here; end it by its cluster's own command")

    def log(self, job: str, logs: Path, *, follow: bool) -> list[str]:
        """The command that shows the output of a job; `zeromt log` runs it.

        Args:
            job: its name.
            logs: folder of logs in the run's.
            follow: whether it goes on until it is ended.

        Raises:
            UserError: there is none.
        """
        return show_files(newest_logs(logs), follow=follow)

    def reach(self, job: str, words: list[str]) -> list[str] | None:
        """The command that runs `zeromt WORDS` where the run's folder is; None where that is this machine."""
        return None


def show_files(files: list[Path], *, follow: bool) -> list[str]:
    """The command that shows files.

    Raises:
        UserError: there is none.
    """
    if not files:
        raise UserError("RUN: it has no log yet; a run has one when it has started")
    return ["tail", *(["-F"] if follow else []), "-n", "+1", "--", *map(str, files)]


def newest_logs(logs: Path) -> list[Path]:
    """The ranks' files of the last start, of each node that has some.

    Args:
        logs: folder of logs in the run's.
    """
    starts = [
        (path.stat().st_mtime, path)
        for path in (*logs.glob("*/"), *logs.glob("node-*/*/"))
        if any(path.glob("attempt_*"))
    ]
    newest = {path.parent: path for _, path in sorted(starts)}
    return sorted(file for path in newest.values() for file in path.rglob("std*.log") if file.stat().st_size)
