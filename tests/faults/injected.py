"""Faults inside real ranks, at the points and steps that a plan names.

A folder that stands first on PYTHONPATH holds a package `trainer` of one file: it calls `install` and then leads to the
real package, so that `zeromt launch local` starts its ranks as ever. `install` patches public methods as their modules
are imported, and none before: the order of a rank's start stays what it is.
"""

import contextlib
import dataclasses
import functools
import importlib.machinery
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

PLAN = "FAULTS"
"""Environment variable with the plan's path. Its value also marks every process that the ranks start."""
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR

SHIM = """
import sys
__path__ = [{real!r}]
from tests.faults.injected import install
install()
"""


@dataclass(kw_only=True, frozen=True)
class Fault:
    """What happens where and when, once in every rank that it concerns unless `times` says more."""

    point: str
    """data, accumulate, forward, stepped, evaluate, save, saved, commit; or `audit:EVENT` of sys.audit, such as
    audit:os.rename."""
    action: str
    """A method of `Injector` without its underscore, or spike at accumulate."""
    rank: int | None = None
    step: int | None = None
    """The update that is made (data, where the next one is fetched, accumulate, forward, stepped) or was made last
    (elsewhere), from 1."""
    since: int = 0
    """From this step on."""
    update: int | None = None
    """Of its epoch, from 0, whatever the step: at accumulate."""
    times: int = 1
    """Over all restarts, in each rank; 0 is without end."""
    value: Any = None
    path: str = ""
    """Part of the path of an audited operation."""


def write_plan(path: Path, faults: Sequence[Fault]) -> None:
    """Write a plan for `install`, and forget what has happened of another one there."""
    for mark in path.parent.glob(f"{path.name}.*"):
        mark.unlink()
    path.write_text(json.dumps([dataclasses.asdict(fault) for fault in faults]))


def has_happened(plan: Path, number: int, rank: int) -> bool:
    """Whether a plan's fault has struck a rank."""
    return Path(f"{plan}.{number}.{rank}.0").exists()


def write_shim(folder: Path, real: Path) -> None:
    """Make the package that stands before the real one."""
    (folder / "trainer").mkdir(parents=True)
    (folder / "trainer" / "__init__.py").write_text(SHIM.format(real=str(real)))


class Injector:
    """The faults of one process."""

    def __init__(self, plan: Path) -> None:
        self.step = -1
        """Updates done; -1 before the run is built, when only what happens before can be met."""
        self.update = -1
        self.load(plan)

    def load(self, plan: Path) -> None:
        """Take another plan; or the same, in a rank that was forked from this process."""
        self._plan = plan
        self._faults = [Fault(**entry) for entry in json.loads(plan.read_text())]
        self.audited = {f.point.removeprefix("audit:") for f in self._faults if f.point.startswith("audit:")}

    @property
    def _rank(self) -> int:
        """Not known in the process that a rank is forked from."""
        return int(os.environ.get("RANK", "0"))

    def meet(self, point: str, *, step: int | None = None, path: str = "") -> list[str]:
        """Let happen what is due here; the names of actions that the caller is to do itself."""
        left = []
        for number, fault in enumerate(self._faults):
            if fault.point != point or fault.path not in path:
                continue
            if fault.rank not in (None, self._rank) or fault.step not in (None, step) or fault.since > (step or 0):
                continue
            if fault.update not in (None, self.update) or not self._is_left(number, fault.times):
                continue
            action = getattr(self, f"_{fault.action}", None)
            if action is None:
                left.append(fault.action)
            else:
                action(fault.value)
        return left

    def _is_left(self, number: int, times: int) -> bool:
        for count in range(times or 1):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{self._plan}.{number}.{self._rank}.{count}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return True
        return times == 0

    def _kill(self, _: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _raise(self, value: Any) -> None:
        raise RuntimeError(f"injected: {value}")

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _stop(self, _: Any) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def _fill_pipe(self, _: Any) -> None:
        os.write(os.pipe()[1], bytes(1 << 20))

    def _hold_gil(self, _: Any) -> None:
        re.match(r"(a+)+$", 50 * "a" + "b")  # backtracks for years, in C

    def _disk_full(self, most: int) -> None:
        """No file of this process grows beyond so many bytes; None lifts it."""
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard if most is None else most, hard))

    def _kill_loader(self, _: Any) -> None:
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid() and b"stream.prefetch" in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)

    def _ask(self, name: str) -> None:
        """Ask the launcher to stop, and go on once the request is here."""
        import psutil

        from configs.process.signals import stop_request

        psutil.Process(os.getppid()).parent().send_signal(getattr(signal, name))  # above torchrun
        while not stop_request()():
            time.sleep(0.01)

    def _flip(self, path: str) -> None:
        """Flip a bit in the middle of a file, in place: a reader may have it open."""
        with Path(path).open("r+b") as file:
            middle = file.seek(0, os.SEEK_END) // 2
            file.seek(middle)
            [byte] = file.read(1)
            file.seek(middle)
            file.write(bytes([byte ^ 1]))


def install() -> None:
    """Have the plan's faults strike this process."""
    if PLAN not in os.environ or any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        return
    injector = Injector(Path(os.environ[PLAN]))
    patches: dict[str, Callable[[Any], None]] = {
        "trainer.build": functools.partial(_patch_build, injector),
        "trainer.loop": functools.partial(_patch_loop, injector),
        "trainer.engines.deepspeed.engine": functools.partial(_patch_engine, injector),
        "trainer.evaluation.evaluator": functools.partial(_patch_evaluation, injector),
        "trainer.checkpoint.save": functools.partial(_patch_saver, injector),
        "data_pipeline.stream.reader": functools.partial(_patch_reader, injector),
    }
    sys.meta_path.insert(0, _AfterImport(injector, patches))
    sys.addaudithook(functools.partial(_on_audit, injector))


def current() -> Injector:
    """The injector of this process, for a program that runs several plans."""
    return next(finder.injector for finder in sys.meta_path if isinstance(finder, _AfterImport))


class _AfterImport(MetaPathFinder):
    """Patches modules once they are executed."""

    def __init__(self, injector: Injector, patches: dict[str, Callable[[Any], None]]) -> None:
        self.injector = injector
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patch = self._patches.pop(fullname, None)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target) if patch is not None else None
        if patch is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def _on_audit(injector: Injector, event: str, arguments: tuple[Any, ...]) -> None:
    if event not in injector.audited or injector.step < 0:
        return
    if event == "open" and not arguments[2] & WRITE_FLAGS:
        return
    injector.meet(f"audit:{event}", step=injector.step, path=str(arguments[0]))


def _before(owner: Any, name: str, action: Callable[..., Any]) -> None:
    """Let `action` happen before a method, or a function of a module."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        action(*arguments, **options)
        return method(*arguments, **options)

    setattr(owner, name, wrapped)


def _patch_build(injector: Injector, module: Any) -> None:
    build = module.build

    @functools.wraps(build)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        injector.step = -1
        built = build(*arguments, **options)
        injector.step = built.resumed_step
        return built

    module.build = wrapped


def _patch_loop(injector: Injector, module: Any) -> None:
    def note(_trainer: Any, update: Any) -> None:
        injector.update = update.number

    _before(module.Trainer, "_train_on", note)


def _patch_engine(injector: Injector, module: Any) -> None:
    engine = module.DeepSpeedEngine
    accumulate, step = engine.accumulate, engine.step

    def before_forward(*_: Any) -> None:
        if injector.step >= 0:
            injector.meet("forward", step=injector.step + 1)

    def note(_self: Any, objective: Any, *_: Any, **__: Any) -> None:
        objective.register_forward_pre_hook(before_forward)

    @functools.wraps(accumulate)
    def accumulate_here(self: Any, *arguments: Any, **options: Any) -> Any:
        if injector.step < 0:
            return accumulate(self, *arguments, **options)
        met = injector.meet("accumulate", step=injector.step + 1)
        out = accumulate(self, *arguments, **options)
        return type(out)(*(20 * figure for figure in out)) if "spike" in met else out

    @functools.wraps(step)
    def step_here(self: Any, *arguments: Any, **options: Any) -> Any:
        result = step(self, *arguments, **options)
        if injector.step >= 0:
            injector.step += 1
            injector.meet("stepped", step=injector.step)
        return result

    _before(engine, "__init__", note)
    engine.accumulate, engine.step = accumulate_here, step_here


def _patch_evaluation(injector: Injector, module: Any) -> None:
    _before(module.Evaluator, "evaluate", lambda *_: injector.meet("evaluate", step=injector.step))


def _patch_saver(injector: Injector, module: Any) -> None:
    begun = module.Saver._begun

    @functools.wraps(begun)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        injector.meet("save", step=injector.step)
        save = begun(*arguments, **options)
        injector.meet("saved", step=injector.step)
        return save

    module.Saver._begun = wrapped
    _before(module.Saver, "commit", lambda *_: injector.meet("commit", step=injector.step))


def _patch_reader(injector: Injector, module: Any) -> None:
    def meet(_: Any) -> None:
        if injector.step >= 0:
            injector.meet("data", step=injector.step + 1)

    _before(module.StreamReader, "next_update", meet)
