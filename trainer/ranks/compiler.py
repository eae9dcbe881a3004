"""Whether this machine has what torch.compile needs beside torch."""

import shlex
import shutil
from collections.abc import Mapping

from configs import UserError


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
