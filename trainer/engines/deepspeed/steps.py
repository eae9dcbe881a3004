"""Patches of how DeepSpeed sums gradients, computes their norm and steps: fewer kernels, one wait.

DeepSpeed goes through the parameters one by one: it checks each gradient for infinities, computes its norm, scales it
and copies it. On a GPU each of these is a kernel that takes longer to launch than to run. Here one operator handles
all gradients; the norm is computed once, and also shows NaN and infinities. The host reads it before the step, or an
update later, where the device decides on the step (`late.Decision`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from deepspeed import comm
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.zero.utils import get_norm_dtype
from torch import Tensor, nn

from trainer.engines.deepspeed.config import BUCKET_ELEMENTS
from trainer.engines.deepspeed.late import Decision


@dataclass(kw_only=True, slots=True, frozen=True)
class Patch:
    """A monkey patch of another package."""

    target: str
    """What is changed."""
    versions: str
    """The package and version that it was written for."""
    reason: str
    apply: Callable[..., Any]
    """Applies the patch to its argument."""


class GradientSum:
    """Sums of gradients over micro-batches, concatenated in a flat fp32 tensor.

    After each micro-batch the gradients are concatenated and added by one kernel; autograd would need two per gradient,
    to cast and to add. This is done in pieces of at most `BUCKET_ELEMENTS` elements, so that there is no second copy of
    all gradients.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], flat: Tensor | None = None, *, factor: float = 1.0) -> None:
        """Start with sums of 0.

        Args:
            parameters: in half precision, all on one device.
            flat: an fp32 tensor with at least as many elements; None allocates one.
            factor: of what is added.
        """
        size = sum(p.numel() for p in parameters)
        device = parameters[0].device if parameters else None
        self.flat = torch.zeros(size, dtype=torch.float32, device=device) if flat is None else flat
        self._parameters, self._factor = list(parameters), factor
        pieces = torch.split(self.flat[:size], [p.numel() for p in parameters])
        self.views = [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]
        """Each parameter's part of the sum."""

    @torch.no_grad()
    def add(self) -> None:
        """Add the parameters' gradients and clear them. An unused parameter has none."""
        begin = 0
        for bucket in self._buckets():
            gradients = [p.grad for p in bucket if p.grad is not None]
            size = sum(p.numel() for p in bucket)
            if len(gradients) == len(bucket) and self.flat.device.type != "cpu":
                self.flat[begin : begin + size].add_(torch.cat([g.reshape(-1) for g in gradients]), alpha=self._factor)
            else:
                self._add_one_by_one(bucket, begin)
            for p in bucket:
                p.grad = None
            begin += size

    def _add_one_by_one(self, bucket: Sequence[nn.Parameter], begin: int) -> None:
        """Add each by itself: on a CPU there are no kernel launches, and small tensors stay in its cache."""
        for p in bucket:
            if p.grad is not None:
                self.flat[begin : begin + p.numel()].add_(p.grad.reshape(-1), alpha=self._factor)
            begin += p.numel()

    def _buckets(self) -> Iterator[list[nn.Parameter]]:
        bucket: list[nn.Parameter] = []
        size = 0
        for p in self._parameters:
            if bucket and size + p.numel() > BUCKET_ELEMENTS:
                yield bucket
                bucket, size = [], 0
            bucket.append(p)
            size += p.numel()
        if bucket:
            yield bucket


def step_on_full_gradients(optimizer: Any, sums: GradientSum, decision: Decision) -> None:
    """Make stage 0 in half precision step directly on gradients that were summed in fp32.

    DeepSpeed would round them to half precision and back for their norm.

    Args:
        optimizer: the engine's, an FP16_UnfusedOptimizer.
        sums: the gradient sums of all its parameters, group after group, divided by the number of ranks.
        decision: on its steps.
    """
    group = comm.comm.get_world_group()

    def clip(norm: float) -> bool:
        """True if the update is skipped."""
        if not math.isfinite(norm):
            sums.flat.zero_()
            return bool(optimizer._skip_invalid_grad_norm())
        optimizer.overflow, optimizer._global_grad_norm = False, norm
        optimizer._update_scale(False)
        divisor = optimizer.unscale_and_clip_grads(norm, apply_scale=False)
        if divisor != 1.0:
            sums.flat.mul_(1.0 / divisor)
        return False

    def step() -> bool:
        halves = [p for group in optimizer.fp16_groups for p in group]
        masters = [p for group in optimizer.fp32_groups for p in group]
        _add_over_ranks([sums.flat], group)
        norm = torch.nn.utils.get_total_norm(sums.views)
        if decision.is_late:
            decision.take(norm)
            optimizer.overflow = False
        elif clip(float(norm)):
            return True
        for master, gradient in zip(masters, sums.views, strict=True):
            master.grad = gradient
        optimizer.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(halves, masters)
        for master in masters:
            master.grad = None
        sums.flat.zero_()
        return False

    optimizer.step = step


def step_on_flat_gradients(optimizer: Any, decision: Decision, *, is_reduced: bool) -> None:
    """Make stage 1 in bf16 sum, average, measure and clip gradients in place: in one flat tensor per group.

    Args:
        optimizer: the engine's, a BF16_Optimizer; the engine must leave averaging to it.
        decision: on its steps.
        is_reduced: whether each rank's partition has the averages over the ranks already when it steps.
    """
    flats, group = optimizer.fp32_groups_gradients_flat, optimizer.dp_process_group
    masters, gradients = optimizer.fp32_groups_flat_partition, optimizer.fp32_groups_gradient_flat_partition

    def clip(norm: float) -> bool:
        """True if the update is skipped."""
        optimizer.overflow = not math.isfinite(norm)
        optimizer._global_grad_norm = math.inf if optimizer.overflow else norm
        if not optimizer.overflow and (scale := clip_scale(norm, optimizer.clip_grad)) < 1:
            torch._foreach_mul_(gradients, scale)
        return bool(optimizer.overflow)

    @torch.no_grad()
    def step() -> None:
        if not is_reduced:
            _add_over_ranks(flats, group)
        norm = _norm_of_all(gradients, group, decision)
        optimizer.overflow = False
        if not decision.is_late and clip(float(norm)):
            return  # the engine resets the sums to 0, here and below
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient
        optimizer.optimizer.step()
        optimizer._lazy_init_hp_params_optimizer_state()
        optimizer.update_lp_params()

    if not is_reduced:
        factor = 1 / comm.get_world_size(group)
        sums = [GradientSum(*pair, factor=factor) for pair in zip(optimizer.bf16_groups, flats, strict=True)]

        def add(clear_lp_grads: bool = False) -> None:
            for one in sums:
                one.add()

        optimizer.update_hp_grads = add
    optimizer.step = step


def clip_scale(norm: float, clip_norm: float) -> float:
    """The clipping factor for gradients of this norm; 1 if they are not clipped."""
    return min(1.0, clip_norm / (norm + 1e-6)) if clip_norm > 0 else 1.0


def measure_once(optimizer: Any, decision: Decision) -> None:
    """Make stages 1 and 2 compute one norm of all partitioned gradients, which also shows infinities.

    This includes offloaded master weights in bf16, for which gradients go to the host in one copy per group instead of
    one per parameter; in other precisions offloading is left unchanged.

    Args:
        optimizer: the engine's, a DeepSpeedZeroOptimizer.
        decision: on its steps.
    """
    groups = range(len(optimizer.bit16_groups))
    is_compact = all(optimizer._use_compact_grad_partition_buffer(i) for i in groups)
    if optimizer.cpu_offload and not is_compact:
        return

    def scaled_global_norm(norm_type: int = 2) -> Tensor:
        gradients = optimizer.averaged_gradients
        if optimizer.cpu_offload:
            for i in groups:  # waiting for the norm waits for this too
                master = optimizer.single_partition_of_fp32_groups[i]
                master.grad.copy_(gradients[i].flat_partition, non_blocking=True)
        norm = _norm_of_all([g for i in groups for g in gradients[i]], optimizer.dp_process_group, decision)
        if optimizer.cpu_offload and not torch.isfinite(norm):
            gradients.clear()  # DeepSpeed would keep adding to them
        return norm

    def keep_on_device(param: Any, group_idx: int | None = None) -> None:
        if optimizer.is_gradient_accumulation_boundary():
            optimizer.clear_grad_attribute(param)

    if optimizer.compute_grad_norm:
        optimizer.check_overflow = lambda *_, **__: None
    optimizer.scaled_global_norm = scaled_global_norm
    _clip_unless_late(optimizer, decision)
    if optimizer.cpu_offload:
        optimizer.copy_grads_in_partition = keep_on_device
    if is_compact:
        _add_partitions_together(optimizer)


def _add_partitions_together(optimizer: Any) -> None:
    """Add the result of a bucket's reduction to this rank's fp32 sums by one operator."""

    def own_part(group: int, number: int, param_id: int) -> tuple[int, int, Tensor] | None:
        """Its offset in the parameter, its length, and its place in the sums."""
        rank = comm.get_rank(group=optimizer.real_dp_process_group[group])
        begin = optimizer.grad_start_offset[group][rank].get(param_id)
        if begin is None:
            return None
        left = optimizer.partition_size[group] - optimizer.grad_partition_insertion_offset[group][rank][param_id]
        size = min(optimizer.bit16_groups[group][number].numel() - int(begin), int(left))
        if size <= 0:
            return None
        return int(begin), size, optimizer._get_compact_grad_partition_slice(group, rank, param_id, size)

    def add(reduced: Tensor, communication_data_type: torch.dtype) -> None:
        sums, parts, begin = [], [], 0
        for group, number, param_id in optimizer.ipg_buckets[communication_data_type].params:
            if (own := own_part(group, number, param_id)) is not None:
                first, size, place = own
                sums.append(place)
                parts.append(reduced.narrow(0, begin + first, size).to(place.dtype))
            begin += optimizer.bit16_groups[group][number].numel()
        if sums:
            torch._foreach_add_(sums, parts)

    def reduce(grads: Sequence[Tensor], params: Any, communication_data_type: torch.dtype, **_: Any) -> None:
        flat = optimizer.flatten([g.reshape(-1) for g in grads])
        for group, number, _ in params:
            optimizer.bit16_groups[group][number].grad = None
        add(optimizer.gradient_reduction_w_predivide(flat, communication_data_type), communication_data_type)

    optimizer._add_full_reduction_to_compact_grad_partition = add
    optimizer._buffered_reduce_fallback_preserving_fp32 = reduce


def measure_shards_once(optimizer: Any, decision: Decision) -> None:
    """Make stage 3 add a bucket's gradients to its shards by one operator, and compute one norm of all shards.

    Also, the device's stream instead of the host waits for a micro-batch's reduction. With offloaded master weights
    nothing is changed, since the host reads the reduced gradients.

    Args:
        optimizer: the engine's, a DeepSpeedZeroOptimizer_Stage3.
        decision: on its steps.
    """
    if optimizer.offload_optimizer:
        return
    by_id = optimizer._DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition

    def partition_grads(params: Sequence[Any], partitions: Sequence[Tensor]) -> list[Tensor]:
        sums, parts = [], []
        for param, part in zip(params, partitions, strict=True):
            if param.partition_numel() * optimizer._get_param_partition_rank(param) < param.ds_numel:
                optimizer._offload_boundary_param_ids.add(param.ds_id)
                sums.append(by_id[param.ds_id].narrow(0, 0, part.numel()))
                parts.append(part.to(optimizer.gradient_accumulation_dtype).view(-1))
            if param.grad is not None and not get_accelerator().is_synchronized_device():
                param.grad.record_stream(get_accelerator().current_stream())
            param.grad = None
        if sums:
            (torch._foreach_copy_ if optimizer.micro_step_id == 0 else torch._foreach_add_)(sums, parts)
        return sums

    def norm_groups() -> list[Tensor]:
        gradients = [g for group in optimizer.averaged_gradients.values() for g in group]
        group = optimizer._get_param_partition_group(optimizer.fp16_groups[0][0])
        return [_norm_of_all(gradients, group, decision)]

    optimizer.partition_grads = partition_grads
    optimizer.check_overflow = lambda *_, **__: None
    optimizer._get_norm_groups = norm_groups
    _clip_unless_late(optimizer, decision)
    stream = optimizer.reduce_and_partition_stream
    if stream is not None and stream != get_accelerator().default_stream():  # a stream of its own, since it overlaps
        optimizer.reduce_and_partition_stream = _ordered_stream()


def _ordered_stream() -> Any:
    """A stream that the device's current stream waits for, instead of the host."""
    accelerator = get_accelerator()

    kind: Any = accelerator.Stream

    class Ordered(kind):  # type: ignore[misc]
        def synchronize(self) -> None:
            accelerator.current_stream().wait_stream(self)

    return Ordered()


def _add_over_ranks(flats: Sequence[Tensor], group: Any) -> None:
    """Add flat gradients over the ranks, in place."""
    if comm.get_world_size(group) > 1:
        for flat in flats:
            comm.all_reduce(flat, group=group)


def _clip_unless_late(optimizer: Any, decision: Decision) -> None:
    """Leave clipping to the device where it decides on the step."""
    clip = optimizer.unscale_and_clip_grads

    def unscale_and_clip_grads(*args: Any) -> None:
        if not decision.is_late:
            clip(*args)

    optimizer.unscale_and_clip_grads = unscale_and_clip_grads


def _norm_of_all(gradients: Sequence[Tensor], group: Any, decision: Decision) -> Tensor:
    """The L2 norm of gradients that are partitioned over the ranks, (), fp64 on the host, which waits for it.

    Where the device decides on the step, it gets the norm, and DeepSpeed 1, with which it goes on.
    Padding is 0 and does not count. Infinite or NaN if a gradient is.
    """
    if gradients:
        norms = torch._foreach_norm(list(gradients), 2, dtype=get_norm_dtype())
        total = torch.stack(norms).square().sum()
    else:
        total = torch.zeros((), dtype=get_norm_dtype(), device=get_accelerator().current_device_name())
    comm.all_reduce(total, group=group)
    if decision.is_late:
        decision.take(total.sqrt_())
        return torch.ones((), dtype=torch.float64)
    return torch.tensor(total.item(), dtype=torch.float64).sqrt()


STEP_ON_FULL_GRADIENTS = Patch(
    target="FP16_UnfusedOptimizer.step",
    versions="deepspeed 0.19",
    reason="gradients in fp32 are rounded to half precision and back for their norm",
    apply=step_on_full_gradients,
)
STEP_ON_FLAT_GRADIENTS = Patch(
    target="BF16_Optimizer.update_hp_grads and step",
    versions="deepspeed 0.19",
    reason="it casts, adds and measures each gradient by itself, and copies all of them to average them",
    apply=step_on_flat_gradients,
)
MEASURE_ONCE = Patch(
    target="DeepSpeedZeroOptimizer.check_overflow, scaled_global_norm and the sums of partitions",
    versions="deepspeed 0.19",
    reason="it looks for infinities in each gradient (15 kernels), and adds and measures each by itself",
    apply=measure_once,
)
MEASURE_SHARDS_ONCE = Patch(
    target="DeepSpeedZeroOptimizer_Stage3.partition_grads, _get_norm_groups and reduce_and_partition_stream",
    versions="deepspeed 0.19",
    reason="it adds and measures each gradient by itself, and the host waits for every micro-batch",
    apply=measure_shards_once,
)
PATCHES = (
    STEP_ON_FULL_GRADIENTS,
    STEP_ON_FLAT_GRADIENTS,
    MEASURE_ONCE,
    MEASURE_SHARDS_ONCE,
)
