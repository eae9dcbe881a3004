"""A device that is not there: tensors say that they are on `pseudo:0`, and their numbers lie in the host's memory.

torch takes the paths of a device behind them, with real results: fused attention and dropout, factories that are given
a device, random numbers of the device's own, autograd's thread for it, collectives. What a GPU refuses is refused
(tensors of two devices in one operator), and a `Meter` counts what a GPU would have to do: kernels that are launched,
and every place where the host waits for the device, by the line of code that made it.

    with metered() as meter:
        objective.to(DEVICE)(*(ids.to(DEVICE) for ids in batch)).loss_sum.backward()
    meter.num_kernels, meter.waits

Importing this makes the device, for the rest of the process. `tests.device.accelerator` lets DeepSpeed take it for one.
"""

import contextlib
import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import _foreach_supported_types as _stepped_together
from torch.utils._foreach_utils import _foreach_supported_types as _taken_together
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.device import attention
from tests.device.meter import METERS, add_call, add_upload, add_wait, is_view, metered

__all__ = ["DEVICE", "MODULE", "PseudoTensor", "host", "metered"]

aten = torch.ops.aten
torch._C._set_only_lift_cpu_tensors(True)
_WHERE = torch.ops.prim.device.default  # torch's C++ asks by it


class _Module:
    """`torch.pseudo`: what torch asks of a device's module."""

    _initialized = True  # else checkpointing does not keep the generator's state

    def __init__(self) -> None:
        self._generator = torch.Generator()

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, _: Any) -> None:
        pass

    def device(self, _: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, _: Any = None) -> Tensor:
        return self._generator.get_state()

    def set_rng_state(self, state: Tensor, _: Any = None) -> None:
        self._generator.set_state(state)

    def synchronize(self, _: Any = None) -> None:
        add_wait("synchronize")

    @contextlib.contextmanager
    def random_numbers(self) -> Iterator[None]:
        """Within it, what draws on the host draws from the device's generator."""
        before = torch.default_generator.get_state()
        torch.default_generator.set_state(self._generator.get_state())
        try:
            yield
        finally:
            self._generator.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(before)


MODULE = _Module()
_setup_privateuseone_for_python_backend("pseudo", backend_module=MODULE)
DEVICE = torch.device("pseudo", 0)


class PseudoTensor(Tensor):
    """A tensor on the device: storage of the host's under the dispatch keys of a device."""

    @staticmethod
    def __new__(cls, of: Tensor) -> "PseudoTensor":
        """Of the same storage, sizes and strides as a tensor of the host, without its history."""
        made: PseudoTensor = Tensor._make_subclass(
            cls, host(of), False, dispatch_device=True, device_for_backend_keys=DEVICE
        )
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it says that it is."""
        return DEVICE

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return DEVICE if func is _WHERE else _run(func, *args, **(kwargs or {}))

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """There so that `Module.to` swaps a parameter in place, and layers that share it go on sharing it."""
        raise NotImplementedError

    __tensor_unflatten__ = __tensor_flatten__

    def tolist(self) -> Any:
        """As a list; the host waits. torch's own takes no subclass."""
        return self.cpu().tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"PseudoTensor({host(self)!r})"


for _types in (_stepped_together, _taken_together):  # as tensors of a GPU are
    _types.append(PseudoTensor)  # type: ignore[arg-type]


def host(tensor: Tensor) -> Tensor:
    """The same memory as a tensor of the host: to look at numbers without a copy, a wait or a count."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        plain = torch.empty(0, dtype=tensor.dtype)
        return plain.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


_pinned: "weakref.WeakValueDictionary[int, torch.UntypedStorage]" = weakref.WeakValueDictionary()
"""Page-locked memory by its address."""


def _pin(tensor: Tensor, _device: torch.device | None = None) -> Tensor:
    copy = tensor.clone()
    _pinned[copy.untyped_storage().data_ptr()] = copy.untyped_storage()
    return copy


def _is_pinned(tensor: Tensor, _device: torch.device | None = None) -> bool:
    return tensor.untyped_storage().data_ptr() in _pinned


_DYNAMIC = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_COPIES = {"aten::copy_", "aten::_to_copy"}
_OWN = {
    aten._scaled_dot_product_fused_attention_overrideable.default: attention.forward,
    aten._scaled_dot_product_fused_attention_overrideable_backward.default: attention.backward,
}


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether an operator is but others; torch takes it apart before, where it records gradients."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """What `F.scaled_dot_product_attention` is on a GPU: one operator."""
    assert not enable_gqa
    fused = aten._scaled_dot_product_fused_attention_overrideable
    return fused(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]


def _run(func: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator of the device, on the host."""
    if func is aten.scaled_dot_product_attention.default:
        return _attend(*args, **kwargs)
    if _is_composite(func):
        return func.decompose(*args, **kwargs)
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    given = [x for x in tensors if isinstance(x, PseudoTensor)]
    _check_devices(func, given, tensors)
    target = kwargs.get("device")
    stays = bool(given) if target is None else torch.device(target).type == DEVICE.type
    if METERS:
        _note_waits(func, args, kwargs, stays)
    inside: dict[int, Tensor] = {}  # of the host, and the tensor that each stands for
    by_tensor: dict[int, Tensor] = {}

    def to_host(tensor: PseudoTensor) -> Tensor:
        if id(tensor) not in by_tensor:
            with torch.inference_mode(False):
                by_tensor[id(tensor)] = host(tensor)
            inside[id(by_tensor[id(tensor)])] = tensor
        return by_tensor[id(tensor)]

    host_args, host_kwargs = tree_map_only(PseudoTensor, to_host, (args, kwargs))
    if target is not None:
        host_kwargs["device"] = torch.device("cpu")
    if host_kwargs.get("pin_memory"):
        host_kwargs["pin_memory"] = False
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    with torch.inference_mode(False), MODULE.random_numbers() if is_random and stays else contextlib.nullcontext():
        out = _OWN.get(func, func)(*host_args, **host_kwargs)
    for one in by_tensor.values():
        _follow(inside[id(one)], one)
    if not stays:
        return out
    # a view of a tensor is none of inference mode's own, even there
    is_inference = torch.is_inference_mode_enabled() and not (is_view(func) and not given[0].is_inference())
    with torch.inference_mode(is_inference):
        out = tree_map_only(Tensor, lambda x: inside[id(x)] if id(x) in inside else PseudoTensor(x), out)
    if METERS:
        add_call(func, args, kwargs, given, out)
    return out


def _check_devices(func: Any, given: list[PseudoTensor], tensors: list[Tensor]) -> None:
    """Refuse what a GPU does: tensors of both sides. Numbers of the host are taken, and indices are copied.

    Raises:
        RuntimeError: as torch does.
    """
    name = func._schema.name
    strangers = [x for x in tensors if not isinstance(x, PseudoTensor) and x.ndim]
    if not given or not strangers or name in _COPIES:
        return
    if name not in _INDEXING or any(x.dtype.is_floating_point for x in strangers):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu! ({name})"
        )
    for _ in strangers:
        add_upload()


def _note_waits(func: Any, args: Any, kwargs: Any, stays: bool) -> None:
    """Note where a GPU makes the host wait: for a number, a copy, or how large a result is."""
    name = func._schema.name
    if name in _COPIES:
        source = args[1] if name == "aten::copy_" else args[0]
        to_device = isinstance(args[0], PseudoTensor) if name == "aten::copy_" else stays
        blocks = not kwargs.get("non_blocking", args[2] if name == "aten::copy_" and len(args) > 2 else False)
        if isinstance(source, PseudoTensor) and not to_device and blocks:
            add_wait("copy to the host")
        if not isinstance(source, PseudoTensor) and to_device and source.ndim and (blocks or not _is_pinned(source)):
            add_upload()
    elif name in _INDEXING:
        is_masked_fill = len(args) > 2 and args[2].numel() == 1
        if not is_masked_fill and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]):
            add_wait("index by a mask")
    elif not stays or not any(tag in func.tags for tag in _DYNAMIC):
        return
    elif name == "aten::_local_scalar_dense":
        add_wait("item")
    elif kwargs.get("output_size") is None:
        add_wait(name.removeprefix("aten::"))


def _follow(tensor: Tensor, plain: Tensor) -> None:
    """Give a tensor the sizes that an operator in place gave the one of the host that stood for it."""
    with torch._C._DisableTorchDispatch():
        changed = (
            tensor.shape != plain.shape
            or tensor.stride() != plain.stride()
            or tensor.storage_offset() != plain.storage_offset()
            or tensor.untyped_storage()._cdata != plain.untyped_storage()._cdata
        )
    if changed:
        tensor.data = PseudoTensor(plain)


_library: Any = torch.library.Library
_everything, _aten = _library("_", "IMPL"), _library("aten", "IMPL")
_everything.fallback(_run, "PrivateUse1")
_aten.impl("scaled_dot_product_attention", _attend, "AutogradPrivateUse1")
if not torch.cuda.is_available():  # beside a GPU memory is pinned for it
    _aten.impl("_pin_memory", _pin, "CPU")
    _aten.impl("is_pinned", _is_pinned, "CPU")
