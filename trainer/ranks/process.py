"""Settings of a process before it computes: speed on a CPU, quiet libraries. Results change at most by denormals."""

import atexit
import ctypes
import gc
import logging
import os
import shutil
import tempfile
from pathlib import Path

import torch

from configs import UserError
from configs.process.environment import check_process
from configs.process.files import expand
from trainer.ranks.distributed import is_one_node

log = logging.getLogger(__name__)

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The variable that configures torch's GPU memory, and its older name."""
LOOPBACK = "lo"
"""The interface's name on Linux."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def tune_process() -> None:
    """Keep freed memory for the next step, flush denormals, bound torch's cache, exit without garbage collection.

    glibc returns every large block to the kernel and gets it again page by page: a log-softmax over 16 million elements
    took 33 ms this way, and 9 ms with the memory kept. Gradients near zero become denormals, and a backward pass on
    them was seen to take 40 times as long. By default torch keeps descriptions of 1,024 matmuls of 258 KB each, which
    fragment the heap. On Hopper cards torch prefers cuDNN's attention, which builds a plan for every new shape, and
    batches and search steps bring new shapes all the time. On GPUs, memory fragments with shapes of all sizes unless
    segments can grow. At exit, Python's garbage collector would go through the million objects of torch and DeepSpeed
    for a second.

    Raises:
        UserError: the environment names an invalid device.
    """
    check_process(os.environ)
    keep_compiled_code()
    stay_on_this_machine()
    if not torch.cuda.is_available():  # with GPUs, a Triton made with nanobind would report all objects as leaks
        atexit.register(gc.freeze)
    # Set, so that DeepSpeed neither searches for it nor prints what it found.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    if torch.cuda.is_available() and not any(os.environ.get(name) for name in ALLOCATOR):
        os.environ[ALLOCATOR[0]] = "expandable_segments:True"  # torch reads it at the first allocation
    os.environ.setdefault("LRU_CACHE_CAPACITY", "256")  # torch's cache of matmul descriptions
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_flush_denormal(True)
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
    except (OSError, AttributeError):  # another C library: slower, but correct
        return


def keep_compiled_code() -> None:
    """Keep compiled code where no other user can write: by default torch keeps and loads it in a folder in /tmp."""
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "torchinductor"), ("TRITON_CACHE_DIR", "triton")):
        if not os.environ.get(variable):
            try:
                folder = Path(os.environ.get("XDG_CACHE_HOME") or expand("~/.cache"), "zeromt", name)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except (OSError, UserError):  # no home, or none to write in: a folder of this process alone
                folder = Path(tempfile.mkdtemp(prefix="zeromt-"))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
            os.environ[variable] = str(folder)
    os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")  # they would lie in /tmp all the same


def stay_on_this_machine() -> None:
    """Where all ranks are on this machine, let gloo and NCCL listen on its loopback interface alone, unless told."""
    if is_one_node(os.environ):
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, LOOPBACK)


def compute_deterministically(*, draws_samples: bool) -> None:
    """Make torch use deterministic operators only, and raise an error for those without a deterministic form.

    On GPUs this includes the backward pass of attention, whose kernels would otherwise add in any order: torch makes
    them deterministic if the switch is strict, as here.

    Args:
        draws_samples: whether evaluations sample translations.

    Raises:
        UserError: with sampling on a GPU, where the cumulative sum over a distribution has no deterministic form.
    """
    if torch.cuda.is_available() and draws_samples:
        raise UserError(
            "training.deterministic: true with evaluation.search.sampler, whose running sums are not deterministic on "
            "a GPU; leave the sampler out, or set training.deterministic=false"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    if torch.cuda.is_available():
        log.info("deterministic: the same updates to the bit on as many GPUs of this kind and versions; slower")
