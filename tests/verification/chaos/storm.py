"""The storm: launches of one run, and faults at random moments of them, each with what must come of it."""

import json
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.verification.chaos import damage as files
from tests.verification.chaos.job import EVERY_UPDATES, HOME, Job, Launch, Layout, Process, send
from tests.verification.chaos.moments import PATIENCE, Deck, Moments
from tests.verification.chaos.watch import Watch

STOPPED = 75
LAYOUTS = [Layout(num_ranks=n, zero_stage=s) for n in (1, 2) for s in range(4)]
FAULTS = {
    "kill rank": 3,
    "kill agent": 2,
    "kill launcher": 1,
    "kill all": 3,
    "SIGTERM": 2,
    "SIGUSR1": 1,
    "STOP": 1,
    "disk full": 2,
    "damage while running": 1,
}
"""Each kind, and how many of it lie in a deck that is drawn to its end before it is shuffled anew."""
DAMAGE_BETWEEN = {"nothing": 4, "newest damaged": 3, "two newest damaged": 1, "pointer damaged": 1}


@dataclass(kw_only=True, slots=True, frozen=True)
class Event:
    """A fault, and what came of it."""

    minutes: float
    launch: int
    layout: str
    fault: str
    moment: str
    outcome: str


class Storm:
    """Starts a run over and over and disturbs it.

    Args:
        faults: kinds to draw from, by how many of each lie in the deck.
        say: is told of every event.
    """

    def __init__(
        self, job: Job, watch: Watch, *, seed: int, faults: dict[str, int], say: Callable[[Event], None]
    ) -> None:
        self.events: list[Event] = []
        self.violations: list[str] = []
        self.num_launches = 0
        self._job = job
        self._watch = watch
        self._rng = random.Random(seed)
        self._faults = Deck(faults, self._rng)
        self._between = Deck(DAMAGE_BETWEEN if "damage while running" in faults else {"nothing": 1}, self._rng)
        self._say = say
        self._checkpoints = job.folder / "checkpoints"
        self._begin = time.monotonic()
        self._moments = Moments(self._checkpoints, watch, self._rng)
        self._num_restarts = 0
        """Of this launch, after a kill."""
        self._damaged: dict[int, int] = {}
        """Steps with a broken checkpoint, and the number of segments when it was broken."""

    def rage(self, minutes: float) -> None:
        """Disturb the run for so long, and leave it stopped."""
        layout, layouts = HOME, Deck(dict.fromkeys(LAYOUTS, 1), self._rng)
        while time.monotonic() < self._begin + 60 * minutes:
            self._start(layout, end=self._begin + 60 * minutes)
            if self.num_launches % 2:
                layout = layouts.draw()

    def finish(self, max_updates: int) -> None:
        """Let the run reach its end, undisturbed."""
        launch = self._launch(HOME, max_updates=max_updates)
        code = launch.wait(300 + 2 * max_updates)
        self._after(launch, "nothing", code)
        if code != 0:
            self.violations.append(f"the last launch ended with {code}, not 0:\n{launch.tail()}")

    def _launch(self, layout: Layout, *, max_updates: int | None = None) -> Launch:
        self._watch.settle()
        self._watch.drop_copies()
        self.num_launches += 1
        self._watch.begin_launch(self.num_launches, layout)
        restarts = self._rng.choice((0, 2))
        self._num_restarts = 0
        self._moments.begin_start()
        if max_updates is None:
            return self._job.start(layout, number=self.num_launches, max_restarts=restarts)
        return self._job.start(layout, number=self.num_launches, max_updates=max_updates)

    def _start(self, layout: Layout, *, end: float) -> None:
        """One launch, disturbed until it has ended."""
        whole = files.whole_steps(self._checkpoints)
        expected, first = (whole[0] if whole else 0), len(self._watch.segments)
        launch = self._launch(layout)
        while True:
            fault = self._faults.draw() if time.monotonic() < end else "SIGTERM"
            in_training = fault in ("disk full", "damage while running")
            moment = self._moments.wait(launch, only_in_training=in_training)
            if moment is None:
                code = launch.wait(0)
                how = f"came no further in {PATIENCE:.0f} s" if code is None else f"ended by itself with {code}"
                for process in launch.one("rank"):
                    send(process.pid, signal.SIGABRT)  # shows where it stands
                launch.wait(2)
                self._violation(f"{how}, before {fault}:\n{launch.tail(40)}")
                launch.kill()
                break
            outcome = self._handlers[fault](launch)
            self._note(layout, fault, moment, outcome)
            if launch.has_ended:
                break
        self._after(launch, fault, launch.wait(0))
        self._check_starts(first, expected)
        self._check_replaced()
        self._damage_between(layout)

    @property
    def _handlers(self) -> dict[str, Callable[[Launch], str]]:
        return {
            "kill rank": lambda launch: self._kill_one(launch, "rank"),
            "kill agent": lambda launch: self._kill_one(launch, "agent"),
            "kill launcher": self._kill_launcher,
            "kill all": self._kill_all,
            "SIGTERM": lambda launch: self._stop(launch, lambda: launch.process.send_signal(signal.SIGTERM)),
            "SIGUSR1": lambda launch: self._stop(launch, lambda: launch.process.send_signal(signal.SIGUSR1)),
            "STOP": self._stop_by_file,
            "disk full": self._fill_disk,
            "damage while running": lambda _: self._damage_newest(1) or "nothing to damage",
        }

    def _kill_one(self, launch: Launch, role: str) -> str:
        """SIGKILL to a rank or the agent: the others must end, and the launcher start anew or give up."""
        candidates = self._existing(launch, role)
        if not candidates:
            return "there was none"
        victim = self._rng.choice(candidates)
        begin = time.monotonic()
        old = [p for p in launch.processes() if p.role in ("agent", "rank")]
        send(victim.pid, signal.SIGKILL)
        while {p.pid for p in launch.processes()} & {p.pid for p in old}:
            if time.monotonic() > begin + PATIENCE:
                self._violation(f"{role} {victim.pid} was killed, and its peers were there {PATIENCE:.0f} s later")
                launch.kill()
                return "peers stayed"
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        while not launch.has_ended and not launch.one("agent") and time.monotonic() < begin + PATIENCE:
            time.sleep(0.02)
        self._moments.begin_start()
        self._num_restarts += not launch.has_ended
        what = "gave up" if launch.has_ended else "restarted"
        name = f"rank {victim.rank}" if role == "rank" else role
        return f"{name} of {len(candidates)}; peers gone in {seconds:.1f} s; {what}"

    def _kill_launcher(self, launch: Launch) -> str:
        """SIGKILL to the launcher alone: the ranks are to save and end."""
        begin = time.monotonic()
        send(launch.process.pid, signal.SIGKILL)
        launch.process.wait()
        launch.wait_for_all(PATIENCE)
        return f"all gone in {time.monotonic() - begin:.1f} s"

    def _kill_all(self, launch: Launch) -> str:
        everyone = launch.processes()
        self._rng.shuffle(everyone)
        launch.kill(everyone)
        return f"{len(everyone)} processes"

    def _stop_by_file(self, launch: Launch) -> str:
        return self._stop(launch, lambda: (self._job.folder / "STOP").touch())

    def _stop(self, launch: Launch, request: Callable[[], object]) -> str:
        """Ask for a save and an end: exit code 75, with a checkpoint no older than the request."""
        step = self._watch.step if self._moments.num_updates else 0
        age = time.monotonic() - launch.begin
        request()
        begin = time.monotonic()
        code = launch.wait(PATIENCE)
        if code is None:
            self._violation(f"runs {PATIENCE:.0f} s after it was asked to stop")
            launch.kill()
            return "did not stop"
        seconds = time.monotonic() - begin
        launch.wait_for_all(PATIENCE)
        if code == -signal.SIGTERM and age < 1:
            return "143 in the first second"
        newest = next(iter(files.whole_steps(self._checkpoints)), 0)
        if code != STOPPED:
            self._violation(f"asked to stop, it ended with {code}, not {STOPPED}:\n{launch.tail()}")
        elif newest < step:
            self._violation(f"asked to stop at step {step}, it ended with {code} and a checkpoint of step {newest}")
        elif step and self._state() != "stopped":
            self._violation(f"stopped with {code}, and status.json says {self._state()}")
        return f"{code} in {seconds:.1f} s, checkpoint of step {newest}"

    def _fill_disk(self, launch: Launch) -> str:
        """No checkpoint can be written for a while; training is to go on."""
        victims = self._existing(launch, "rank")
        written = [p for p in self._job.folder.glob("**/*.jsonl") if p.is_file()]
        num_bytes = max(p.stat().st_size for p in written) + (64 << 10)
        if self._rng.random() < 0.5:
            victims = self._rng.sample(victims, 1)
        failures, begin = self._watch.num_failed_saves, time.monotonic()
        pids = {p.pid for p in victims}
        files.limit_files(pids, num_bytes)
        while self._watch.num_failed_saves == failures and time.monotonic() < begin + 15:
            if not pids <= {p.pid for p in launch.processes()}:
                self._violation(f"ended because the disk was full:\n{launch.tail()}")
                break
            time.sleep(0.02)
        files.limit_files(pids, None)
        whose = "all ranks" if len(victims) > 1 else f"rank {victims[0].rank}" if victims else "no rank"
        return f"{whose}, {self._watch.num_failed_saves - failures} failed saves"

    def _damage_newest(self, number: int) -> str:
        """Damage so many of the newest whole checkpoints; the last whole one is left alone."""
        whole = files.whole_steps(self._checkpoints)
        done = []
        for step in whole[: min(number, len(whole) - 1)]:
            done.append(files.damage(files.step_folders(self._checkpoints)[step], self._rng))
            self._damaged[step] = len(self._watch.segments)
        return "; ".join(done)

    def _damage_between(self, layout: Layout) -> None:
        """Between two launches."""
        what = self._between.draw()
        done = ""
        if what == "pointer damaged" and self._checkpoints.is_dir():
            done = files.damage_pointer(self._checkpoints, self._rng)
        elif what != "nothing":
            done = self._damage_newest(2 if what.startswith("two") else 1)
        if done:
            self._note(layout, what, "between launches", done)

    def _after(self, launch: Launch, fault: str, code: int | None) -> None:
        """What must hold after every launch."""
        left = launch.wait_for_all(30)
        if left:
            names = ", ".join(f"{p.role} {p.pid}" for p in left)
            self._violation(f"30 s after the end these were left: {names}")
            launch.kill()
        self._watch.settle()
        if code == 2:
            self._violation(f"refused:\n{launch.tail()}")
        if code == 1 and fault not in ("kill rank", "kill agent", "disk full"):  # the last says so itself
            self._violation(f"ended with 1 after {fault}:\n{launch.tail()}")
        said = launch.log.read_text(errors="replace").splitlines()
        restarts = sum(line.startswith("zeromt: the ranks failed; restart") for line in said)
        if not 0 <= restarts - self._num_restarts <= (fault == "kill all"):  # the agent may have gone first
            self._violation(f"ranks failed by themselves: {restarts} restarts after {self._num_restarts} kills")
        newest = self._watch.versions[-1].step if self._watch.versions else 0
        if newest and newest not in self._damaged:
            folder = files.step_folders(self._checkpoints).get(newest)
            if folder is None or not files.is_whole(folder):
                self._violation(f"the checkpoint of step {newest}, which was committed last, is not whole")

    def _check_starts(self, first: int, expected: int) -> None:
        """Every start of the ranks in this launch must have resumed from the newest whole checkpoint."""
        for index, segment in enumerate(self._watch.segments[first:], first):
            if index > first:
                expected = next((v.step for v in reversed(self._watch.versions) if v.segment < index), 0)
                if expected in self._damaged:  # it may have been damaged since
                    continue
            if segment.start != expected:
                self._violation(
                    f"went on from step {segment.start}; the newest whole checkpoint was of step {expected}"
                )

    def _check_replaced(self) -> None:
        """A damaged checkpoint whose step was passed once more must have been written once more."""
        for step, since in list(self._damaged.items()):
            folder = files.step_folders(self._checkpoints).get(step)
            if folder is None or files.is_whole(folder):
                del self._damaged[step]
            elif step % EVERY_UPDATES == 0 and any(
                s.start < step and step + EVERY_UPDATES < s.last for s in self._watch.segments[since:]
            ):
                self._violation(f"the broken checkpoint of step {step} was passed, and not replaced")
                del self._damaged[step]

    def _existing(self, launch: Launch, role: str) -> Sequence[Process]:
        """The living processes of a role, as soon as there are any."""
        end = time.monotonic() + 30
        while not (found := launch.one(role)) and not launch.has_ended and time.monotonic() < end:
            time.sleep(0.02)
        return found

    def _state(self) -> str:
        try:
            return str(json.loads((self._job.folder / "status.json").read_text())["state"])
        except (OSError, ValueError, KeyError):
            return "nothing"

    def _note(self, layout: Layout, fault: str, moment: str, outcome: str) -> None:
        minutes = (time.monotonic() - self._begin) / 60
        event = Event(
            minutes=round(minutes, 2),
            launch=self.num_launches,
            layout=str(layout),
            fault=fault,
            moment=moment,
            outcome=outcome,
        )
        self.events.append(event)
        self._say(event)

    def _violation(self, text: str) -> None:
        self.violations.append(f"launch {self.num_launches}: {text}")
