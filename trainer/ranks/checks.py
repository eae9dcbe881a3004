"""Checks before training: a compiler, what DeepSpeed can shard on these ranks, a folder that all of them see."""

import contextlib
import os
import shlex
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from configs import EngineSection, UserError
from configs.process.files import exists, explain
from configs.process.files.inside import look_again, read_text, write_text
from configs.zero_keys import check_ranks, needs_quantizer
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World
from trainer.runs.layout import CHECKPOINTS


def check_compiler(environ: Mapping[str, str], *, has_gpu: bool) -> None:
    """Check for a compiler: C on a GPU, with which Triton builds launchers for its kernels; C++ on a CPU.

    Args:
        environ: of the ranks; CC and CXX name the compilers if they are set.
        has_gpu: whether a GPU computes.

    Raises:
        UserError: there is none.
    """
    variable, names = ("CC", ("gcc", "clang")) if has_gpu else ("CXX", ("g++",))
    asked = environ.get(variable)
    if asked:
        names = (next(iter(shlex.split(asked)), asked),)
    if any(shutil.which(name, path=environ.get("PATH")) for name in names):
        return
    said = f"{variable}={asked} is no program" if asked else f"this machine has no {' or '.join(names)}"
    raise UserError(
        f"engine.compile: true, and {said}: torch.compile needs a {'C' if has_gpu else 'C++'} compiler on a "
        f"{'GPU' if has_gpu else 'CPU'}; install one, name it in {variable}, or set engine.compile=false"
    )


def check_engine(section: EngineSection, world: World) -> None:
    """Refuse what DeepSpeed cannot do on these ranks, in one line, before it is imported.

    Raises:
        UserError: naming the key and what is allowed.
    """
    keys = section.zero_optimization
    check_ranks(keys, ranks=world.size, on_each=int(os.environ.get("LOCAL_WORLD_SIZE", world.size)))
    if (key := needs_quantizer(keys)) is not None and (problem := _why_no_quantizer(world)) is not None:
        raise UserError(f"engine.zero_optimization.{key}: true {problem}; allowed here is false")


def _why_no_quantizer(world: World) -> str | None:
    if is_host(world.device):
        return "on a CPU, which DeepSpeed's quantizer has no kernel for"
    from torch.utils.cpp_extension import CUDA_HOME  # which looks for it

    return None if CUDA_HOME else "without a CUDA toolkit, by which DeepSpeed compiles its quantizer"


def make_shared(folder: Path, world: World) -> None:
    """Make the run's folder, and check that every rank sees what rank 0 writes there.

    Raises:
        UserError: it cannot be written, or is not shared between the machines.
    """
    token = world.from_main(uuid.uuid4().hex)
    probe = folder / f".shared-{token}"
    problem, where = None, folder
    if world.is_main:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(probe, token)
            where = folder / CHECKPOINTS
            _probe(where)
        except OSError as error:
            _remove(probe)  # a full disk leaves an empty file
            problem = f"output: {str(where)!r} cannot be written: {explain(error)}"
    problem = world.from_main(problem)
    if problem is not None:
        raise UserError(problem)
    blind = [rank for rank, sees in enumerate(world.gather(_reads(probe, token))) if not sees]
    world.barrier()
    if world.is_main:
        _remove(probe)
    if blind:
        raise UserError(
            f"output: {str(folder)!r} is not shared: rank {blind[0]} does not see what rank 0 wrote; "
            "choose a folder that all machines of the run share"
        )


def _probe(checkpoints: Path) -> None:
    """Check that checkpoints can be written to their place, before there is anything to save.

    Raises:
        OSError: they cannot.
    """
    if exists(checkpoints):  # if it does not exist, it will be made in a folder that is known to be writable
        with tempfile.TemporaryFile(dir=checkpoints):
            pass


def _remove(probe: Path) -> None:
    with contextlib.suppress(OSError):
        probe.unlink(missing_ok=True)


def _reads(probe: Path, token: str) -> bool:
    try:
        look_again(probe.parent)
        return read_text(probe) == token
    except OSError:
        return False
