"""The protocol of a cluster, behind `zeromt launch KIND`, `status`, `stop` and `log`."""

import dataclasses
import os
from pathlib import Path
from typing import Any, ClassVar

from configs import UserError
from configs.components import Component
from configs.process.files.inside import check_folder, opened
from launcher.jobs.job import JobState
from launcher.machine.supervise import Supervisor
from launcher.options.parser import Parser


@dataclasses.dataclass(kw_only=True, frozen=True)
class Cluster(Component):
    """A way to run jobs. Its fields are its section of a site's profile; `--set KEY=VALUE` replaces one.

    A cluster that runs a job in the foreground implements `launch`; one with a queue derives from `BatchCluster`. For a
    submitted job, `query`, `stop`, `log` and `reach` are called with the fields recorded in the run's folder. As that
    may come from anywhere, these methods must not run a program that a field names.
    """

    is_foreground: ClassVar[bool] = False
    """Whether `launch` runs until the job has ended, handling signals through its supervisor."""
    usage: ClassVar[str] = ""
    """One line for the list of commands."""

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add the arguments of `zeromt launch KIND`. One with the name of a field overrides the profile's."""
        raise NotImplementedError

    def launch(self, supervisor: Supervisor | None, **arguments: Any) -> int:
        """`zeromt launch KIND`.

        Args:
            supervisor: for a cluster in the foreground; its signal handlers are in place.
            arguments: named by `add_arguments`, without those that are fields.

        Returns:
            0 finished, or submitted; 2 refused; 75 stopped on request after a complete save; 1 anything else.

        Raises:
            UserError: the configuration or an argument is wrong, or the cluster refuses.
        """
        raise NotImplementedError

    def query(self, job: str) -> JobState | None:
        """The state of a job, within ten seconds; None if the cluster does not keep track of jobs."""
        return None

    def owns(self, job: str, logs: Path) -> bool:
        """Whether the cluster's own record says that a job is this user's and writes into these logs.

        A job that it does not own is never stopped, nor reached: the run that names it may be a stranger's.

        Args:
            job: its name.
            logs: folder of logs in the run's.
        """
        return False

    def stop(self, job: str) -> None:
        """End a waiting job, or a running one that does not see the run's folder to which `zeromt stop` writes.

        Raises:
            UserError: the cluster refuses, or cannot.
        """
        raise UserError(f"RUN: job {job} cannot be ended from here; end it by its cluster's own command")

    def log(self, job: str, logs: Path, *, follow: bool) -> list[str]:
        """The command that shows the output of a job; `zeromt log` runs it.

        Args:
            job: its name.
            logs: folder of logs in the run's.
            follow: whether the command keeps following the output.

        Raises:
            UserError: there is none.
        """
        return show_files(newest_logs(logs), follow=follow)

    def reach(self, job: str, words: list[str]) -> list[str] | None:
        """The command that runs `zeromt WORDS` where the run's folder is; None if that is this machine."""
        return None


def show_files(files: list[Path], *, follow: bool) -> list[str]:
    """The command that shows files.

    Raises:
        UserError: there is none, or one is no plain file.
    """
    if not files:
        raise UserError("RUN: it has no log yet; a run has one when it has started")
    for file in files:
        os.close(opened(file))
    return ["tail", *(["-F"] if follow else []), "-n", "+1", "--", *map(str, files)]


def newest_logs(logs: Path) -> list[Path]:
    """The ranks' log files of the last start, of each node that has some.

    Args:
        logs: folder of logs in the run's.

    Raises:
        FileError: another user's link leads to one.
    """
    if not logs.is_dir():
        return []
    check_folder(logs, within=logs.parent)
    starts = [
        (path.stat().st_mtime, path)
        for path in (*logs.glob("*/"), *logs.glob("node-*/*/"))
        if any(path.glob("attempt_*"))
    ]
    newest = {path.parent: path for _, path in sorted(starts)}
    for path in newest.values():
        check_folder(path, within=logs.parent)
    return sorted(file for path in newest.values() for file in path.rglob("std*.log") if file.stat().st_size)
