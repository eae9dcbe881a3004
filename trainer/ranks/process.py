"""Settings of a process before it computes: speed on a CPU, quiet libraries. Results change by denormals at most."""

import atexit
import ctypes
import gc
import logging
import os

import torch

from configs import UserError
from trainer.runs.process.environment import check_process

log = logging.getLogger(__name__)

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""What sets up torch's memory on GPUs; the second is its older name."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def tune_process() -> None:
    """Keep freed memory for the next step, flush denormals, bound oneDNN's cache, end without a last collection.

    glibc hands every large block back to the kernel and takes it anew, page by page: a log-softmax over 16 million
    elements took 33 ms so, and 9 ms with the memory kept. Gradients near zero become denormals, and a backward pass on
    them was seen to take 40 times as long. oneDNN keeps a kernel for every shape it ever saw unless told otherwise, and
    torch a description of 1,024 products, 258 KB each, between which the heap falls into pieces.
    On Hopper cards torch prefers cuDNN's attention, which makes a plan for every shape that it has not seen: batches
    bring new ones all the time, and so does each step of a search.
    On GPUs, memory that shapes of all sizes were cut from falls into pieces unless segments can grow.
    A process that ends looks for garbage among the million objects of torch and DeepSpeed, for a second.

    Raises:
        UserError: the environment asks for threads or devices that are none.
    """
    check_process(os.environ)
    atexit.register(gc.freeze)
    # Named, so that DeepSpeed need not look for it, and say what it found.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    if torch.cuda.is_available() and not any(os.environ.get(name) for name in ALLOCATOR):
        os.environ[ALLOCATOR[0]] = "expandable_segments:True"  # read at the first allocation
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "256")  # torch's own descriptions
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_flush_denormal(True)
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
    except (OSError, AttributeError):  # another C library: slower, not wrong
        return


def compute_deterministically(*, draws_samples: bool) -> None:
    """Have torch take operators that give the same numbers each time, and none that have no such form.

    On GPUs that includes attention going backward, whose kernels add up in any order otherwise: torch asks them to keep
    one where the switch is strict, as here.

    Args:
        draws_samples: whether evaluations do.

    Raises:
        UserError: on a GPU they cannot be had: sums along a distribution have no deterministic form there.
    """
    if torch.cuda.is_available() and draws_samples:
        raise UserError(
            "training.deterministic: true with evaluation.search.sampler, whose running sums are not deterministic on "
            "a GPU; allowed there is a search without a sampler, or training.deterministic=false"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    if torch.cuda.is_available():
        log.info("deterministic: the same updates to the bit on as many GPUs of this kind and versions; slower")
