"""Jobs on a real SLURM, by the project's own submission: whatever happens to them, the updates are the same ones."""

import gzip
import json
import os
import signal
from pathlib import Path

import pytest

from tests.conftest import BUNDLED, REPO
from tests.slurm.conftest import PATIENCE, Job, MakeJob, assert_same_updates
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3000)]
AT = 15
"""The update at which something happens."""
SLOW = """
import time
from configs.components import Tracker, component


class Writer:
    def write(self, *_):
        pass

    def event(self, step, figures):
        if "outcome" in figures:  # rank 0 has saved, and does not say so yet
            time.sleep(8)

    def close(self):
        pass


@component("tracker", "slow")
class Slow(Tracker):
    '''Slows rank 0.'''

    def open(self, folder, *, config, resume_step):
        return Writer()
"""


def test_a_killed_rank_a_warning_and_a_lost_node(make_job: MakeJob, undisturbed: Job) -> None:
    """From a login that exports nothing, with an option of sbatch that holds all that a shell would read."""
    job = make_job()
    comment = """it's "x" # \\ $(touch y) `z` %j"""
    profile = (f"environment.PYTHONPATH={REPO}", "sbatch.nodelist=n[1-2]", f"sbatch.comment={json.dumps(comment)}")
    job.submit(*(word for one in profile for word in ("--set", one)), SBATCH_EXPORT="NONE")
    job.wait_for_step(AT)
    shown = job.cluster.ask("scontrol", "show", "job", job.number).stdout
    assert f"   Comment={comment} \n" in shown
    os.kill(job.process("n2", rank="3"), signal.SIGKILL)
    killed = job.wait_for_resume(1, 10)
    assert "zeromt: rank 3 on n2 failed first" in job.output()
    assert f"started again, 1 of 3 since step {killed}\n" in job.output()
    assert job.cluster.job(job.number)["Restarts"] == "0"

    job.cluster.ask("scancel", "--signal=USR1", "--batch", job.number)
    saved = job.wait_for_resume(2, 5)
    assert f"stopped after a complete save; back in the queue, 1 of 5 since step {saved}\n" in job.output()
    assert saved >= killed + 10
    assert job.cluster.job(job.number)["Restarts"] == "1"

    job.cluster.fail("n2")
    try:
        job.wait("PENDING", "REQUEUED", "FAILED", "COMPLETING")
    finally:
        job.cluster.boot("n2")
    assert job.wait()["JobState"] == "COMPLETED", job.output()
    assert int(job.cluster.job(job.number)["Restarts"]) >= 2
    assert (job.folder / "logs" / f"run-{job.number}.code").read_text() == f"0 {job.number}\n"
    assert_same_updates(job, undisturbed)


def test_one_job_writes_a_run_until_it_is_stopped(make_job: MakeJob, tmp_path: Path) -> None:
    """Another is refused, once; whoever waits for it may be killed; a stop on one node is one of all."""
    (tmp_path / "slow.py").write_text(SLOW)
    first = make_job("training.max_updates=100000", "plugins=[slow.py]", "trackers=[{kind: slow}]")
    waiter = first.start(*first.launch("--wait"))
    assert waiter.stdout is not None
    first.number = waiter.stdout.readline().strip()
    first.wait_for_step(AT)
    waiter.kill()
    waiter.communicate()
    second = make_job("training.max_updates=100000")
    refused = second.zeromt(*second.launch("--wait", "--job-name", "other"), XDG_STATE_HOME=str(tmp_path / "other"))
    assert refused.returncode == 2, refused.stderr
    assert "is being written by process" in refused.stderr
    ended = first.cluster.job(refused.stdout.strip())
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("FAILED", "2:0", "0")

    os.kill(first.process("n2"), signal.SIGTERM)
    saved = first.wait_for_resume(1, 5)
    assert f"stopped after a complete save; back in the queue, 1 of 5 since step {saved}\n" in first.output()
    waiter = first.start(*first.launch("--wait"))
    wait_until(lambda: waiter.stdout is not None and waiter.stdout.readline() == f"{first.number}\n", seconds=PATIENCE)
    assert first.zeromt("stop", str(first.folder)).returncode == 0
    assert waiter.wait(PATIENCE) == 75
    ended = first.wait()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("FAILED", "75:0", "1"), first.output()
    waiter.communicate()


def test_commands_in_parts_one_of_which_is_killed(make_job: MakeJob, undisturbed: Job, tmp_path: Path) -> None:
    """Launched again, the array goes on where it was, and its merge is that of one machine."""
    job = make_job()
    settings = (f"prepare.root={BUNDLED}", "prepare.pairs_per_block=32")
    array = ("launch", "slurm", "--site", "cpu", "--wait", "--array", "4", "--", "zeromt")
    for name, launch in (("alone", ()), ("shared", array)):
        done = job.zeromt(*launch, "prepare", "debug", *settings, f"prepare.output={tmp_path}/{name}")
        assert done.returncode == 0, done.stderr
    shards = [json.loads((tmp_path / name / "index.json").read_text())["shards"] for name in ("alone", "shared")]
    assert shards[0] == shards[1]

    lines = gzip.decompress((BUNDLED / "train.en.gz").read_bytes()).splitlines(keepends=True)[:2000]
    (tmp_path / "corpus.en").write_bytes(b"".join(lines))
    words = ("translate", str(undisturbed.folder), "-i", "corpus.en", "--chunk-lines", "10", "--beam", "6")
    for share in ("--part=1/1", "--merge"):
        alone = job.zeromt(*words, "-o", "alone", share)
        assert alone.returncode == 0, alone.stderr
    waiter = job.start(*array, *words, "-o", "out")
    assert waiter.stdout is not None
    parts = waiter.stdout.readline().strip()
    first = tmp_path / "out" / "chunks" / "000" / "000002.jsonl.zst"
    wait_until(first.exists, lambda: "".join(path.read_text() for path in (tmp_path / "logs").glob("*.out")))
    job.cluster.ask("scancel", f"{parts}_3")
    _, err = waiter.communicate(timeout=PATIENCE)
    assert waiter.returncode == 1
    assert "left no exit code: it was cancelled" in err
    assert not (tmp_path / "out" / "translations.txt").exists()
    written = first.stat().st_mtime_ns
    again = job.zeromt(*array, *words, "-o", "out")
    assert again.returncode == 0, again.stderr
    assert first.stat().st_mtime_ns == written, "what is there is not translated again"
    for name in ("translations.txt", "translations.source.txt", "translations.scores.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
