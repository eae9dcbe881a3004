"""Settings of a process before it computes: speed on a CPU, quiet libraries. Results change by denormals at most."""

import atexit
import ctypes
import gc
import os

import torch

from trainer.runs.process.environment import check_process

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def tune_process() -> None:
    """Keep freed memory for the next step, flush denormals, bound oneDNN's cache, end without a last collection.

    glibc hands every large block back to the kernel and takes it anew, page by page: a log-softmax over 16 million
    elements took 33 ms so, and 9 ms with the memory kept. Gradients near zero become denormals, and a backward pass on
    them was seen to take 40 times as long. oneDNN keeps a kernel for every shape it ever saw unless told otherwise, and
    torch a description of 1,024 products, 258 KB each, between which the heap falls into pieces.
    On Hopper cards torch prefers cuDNN's attention, which makes a plan for every shape that it has not seen: batches
    bring new ones all the time, and so does each step of a search.
    A process that ends looks for garbage among the million objects of torch and DeepSpeed, for a second.

    Raises:
        UserError: the environment asks for threads or devices that are none.
    """
    check_process(os.environ)
    atexit.register(gc.freeze)
    # Named, so that DeepSpeed need not look for it, and say what it found.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
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
