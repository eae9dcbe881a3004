"""Peak memory and time of the output layer and its loss: in chunks (`model.loss`) and with all logits at once.

    python -m benchmarks.training.loss_memory

Forward and backward of one micro-batch without padding, with label smoothing 0.1, each in a new process. The gradients
of weight and hidden states are a lower bound of the peak. Above this bound, the chunked loss may take at most a third
of plain torch's memory. Exit code 1 if it takes more, or if losses or gradients differ.
"""

import contextlib
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.child import call
from benchmarks.common.measure import machine, median, parser, print_machine, print_table, spread
from benchmarks.common.results import Row, figure, record
from configs import UserError
from model.loss import CrossEntropy, OutputLayer
from trainer.ranks.process import tune_process

MIB = 2**20
SMOOTHING = 0.1
PADDING_ID = 0
TARGET = 1 / 3
TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}
"""Tolerance of the loss, relative to its value, and of gradients, relative to their largest element."""


def plain(layer: OutputLayer, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
    """The loss summed over all rows, from all logits at once, with softmax in fp32."""
    logits_NV = layer(hidden_ND).float()
    return F.cross_entropy(logits_NV, targets_N, reduction="sum", label_smoothing=SMOOTHING, ignore_index=PADDING_ID)


def chunked(layer: OutputLayer, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
    """The same sum as the trainer computes it, in chunks."""
    loss: Tensor = layer(hidden_ND, targets_N, CrossEntropy(SMOOTHING))[0]
    return loss


WAYS: Mapping[str, Callable[[OutputLayer, Tensor, Tensor], Tensor]] = {"plain": plain, "chunked": chunked}


def measure(
    *, way: str, vocab: int, tokens: int, width: int, dtype: str, device: str, threads: int, save: str
) -> dict[str, Any]:
    """Run forward and backward twice; returns peak bytes of the first and seconds of the second.

    Args:
        way: a key of `WAYS`.
        vocab: vocabulary size.
        tokens: number of rows; none is padding.
        width: width of the hidden states.
        dtype: dtype of weight and hidden states.
        device: a torch device.
        threads: torch threads on a CPU.
        save: file for loss and gradients.
    """
    tune_process()
    torch.set_num_threads(threads)
    _forward_and_backward(way, *_inputs(64, 64, 64, dtype, device))  # lets libraries initialise
    inputs = _inputs(vocab, tokens, width, dtype, device)
    before = _reset_peak(device)
    loss, gradients = _forward_and_backward(way, *inputs)
    peak = _peak(device) - before
    torch.save({"loss": loss.cpu(), **{name: g.cpu() for name, g in gradients.items()}}, save)
    bound = sum(g.nbytes for g in gradients.values())
    del gradients
    begin = time.perf_counter()
    _forward_and_backward(way, *inputs)
    _wait(device)
    return {"peak": peak, "bound": bound, "seconds": time.perf_counter() - begin}


def _inputs(vocab: int, tokens: int, width: int, dtype: str, device: str) -> tuple[OutputLayer, Tensor, Tensor]:
    """The layer, hidden states (tokens, width) and targets (tokens,); the same at every call."""
    generator = torch.Generator(device).manual_seed(1)
    kind: torch.dtype = getattr(torch, dtype)
    with torch.device(device):
        layer = OutputLayer(width, vocab, padding_id=PADDING_ID).to(kind)
        nn.init.normal_(layer.weight, std=width**-0.5, generator=generator)
        hidden = torch.randn(tokens, width, dtype=kind, generator=generator).requires_grad_()
        targets = torch.randint(1, vocab, (tokens,), generator=generator)
    return layer, hidden, targets


def _forward_and_backward(
    way: str, layer: OutputLayer, hidden_ND: Tensor, targets_N: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and its gradients."""
    loss = WAYS[way](layer, hidden_ND, targets_N)
    weight, hidden = torch.autograd.grad(loss, [layer.weight, hidden_ND])
    return loss.detach(), {"weight": weight, "hidden": hidden}


def _reset_peak(device: str) -> int:
    """Reset the peak; returns the bytes in use now."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with contextlib.suppress(OSError):  # not permitted: the peak so far is then hardly higher than now
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak(device: str) -> int:
    """Peak bytes since `_reset_peak`: torch's allocator on a GPU, resident memory on a CPU."""
    return _status("VmHWM") if device == "cpu" else torch.cuda.max_memory_allocated()


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def differences(first: Path, second: Path) -> dict[str, float]:
    """For loss and gradients in two files: the largest absolute difference relative to the largest element."""
    one, other = (torch.load(path, weights_only=True, mmap=True) for path in (first, second))
    return {
        name: float((one[name].float() - other[name].float()).abs().max() / one[name].float().abs().max())
        for name in one
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both ways in turns, compare them and print the table."""
    options = parser(__doc__)
    options.add_argument("--vocab", type=int, default=64_000)
    options.add_argument("--tokens", type=int, default=8192, help="target tokens of the micro-batch")
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--dtype", choices=TOLERANCES, default="float32")
    options.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=1)
    args = options.parse_args(arguments)
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    figures: dict[str, Any] = {"machine": machine()}
    print_machine(figures["machine"])
    sizes = {key: getattr(args, key) for key in ("vocab", "tokens", "width", "dtype", "device", "threads")}
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        files = {way: Path(folder) / way for way in WAYS}
        rounds = [{way: call(measure, way=way, save=files[way], **sizes) for way in WAYS} for _ in range(args.rounds)]
        figures |= {"sizes": sizes, "rounds": rounds, "differences": differences(*files.values())}
    is_well = report(figures)
    record(args, "loss_memory", rows_of(figures), figures, settings=sizes)
    return 0 if is_well else 1


def rows_of(figures: dict[str, Any]) -> list[Row]:
    """The rows of the result file."""
    rows: list[Row] = [
        {
            "part": "ways",
            "loss": way,
            "peak_mib": median(r[way]["peak"] for r in figures["rounds"]) / MIB,
            "above_mib": median(r[way]["peak"] - r[way]["bound"] for r in figures["rounds"]) / MIB,
            "seconds": figure(r[way]["seconds"] for r in figures["rounds"]),
        }
        for way in WAYS
    ]
    return [*rows, {"part": "left", "left": figure(figures["shares"]), "target": TARGET}]


def report(figures: dict[str, Any]) -> bool:
    """Print the tables and add the fractions to the figures; returns whether all targets are met."""
    sizes, rounds = figures["sizes"], figures["rounds"]
    rows = [
        {
            "loss": way,
            "peak MiB": _mib([r[way]["peak"] for r in rounds]),
            "lower bound": _mib([r[way]["bound"] for r in rounds]),
            "above the bound": _mib([r[way]["peak"] - r[way]["bound"] for r in rounds]),
            "seconds": f"{median(r[way]['seconds'] for r in rounds):.2f}",
        }
        for way in WAYS
    ]
    title = "{tokens:,} target tokens, vocabulary {vocab:,}, width {width}, {dtype} on {device}".format(**sizes)
    print_table(f"Output layer and loss, forward and backward: {title}", rows)
    above = [{way: r[way]["peak"] - r[way]["bound"] for way in WAYS} for r in rounds]
    figures["shares"] = [a["chunked"] / a["plain"] for a in above]
    figures["times_as_long"] = [r["chunked"]["seconds"] / r["plain"]["seconds"] for r in rounds]
    holds: bool = max(figures["shares"]) <= TARGET
    print(
        f"memory above the lower bound, chunked over plain: {spread(figures['shares'], '.1%')}; "
        f"target: at most a third, {_verdict(holds)}"
    )
    print(f"seconds, chunked over plain: {spread(figures['times_as_long'])}")
    tolerance = TOLERANCES[sizes["dtype"]]
    is_same: bool = max(figures["differences"].values()) <= tolerance
    shown = ", ".join(f"{name} {difference:.1e}" for name, difference in figures["differences"].items())
    print(f"relative differences: {shown}; target: at most {tolerance:.0e}, {_verdict(is_same)}")
    return holds and is_same


def _mib(values: Sequence[int]) -> str:
    return f"{median(values) / MIB:,.0f}"


def _verdict(holds: bool) -> str:
    return "holds" if holds else "does NOT hold"


if __name__ == "__main__":
    try:
        # imported by its module name, so that child processes find `measure`
        sys.exit(importlib.import_module("benchmarks.training.loss_memory").main())
    except UserError as error:
        sys.exit(f"error: {error}")
