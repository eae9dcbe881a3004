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
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import _foreach_supported_types as _stepped_together
from torch.utils._foreach_utils import _foreach_supported_types as _taken_together

from tests.device import attention
from tests.device.meter import METERS, add_call, add_upload, add_wait, metered
from tests.device.module import DEVICE, MODULE

__all__ = ["DEVICE", "MODULE", "PseudoTensor", "host", "metered"]

aten = torch.ops.aten
torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=) copies by an operator, which is seen here
_WHERE = torch.ops.prim.device.default  # torch's C++ asks by it


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

    def __getattr__(self, name: str) -> Any:
        """By `__tensor_flatten__` `Module.to` sees that it has to swap a parameter in place, which cannot become
        another kind of tensor by `data`. So layers that share it go on sharing it."""
        if name in ("__tensor_flatten__", "__tensor_unflatten__") and "was_on_host" in vars(self):
            return None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def tolist(self) -> Any:
        """As a list; the host waits. torch's own takes no subclass."""
        return self.cpu().tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """DeepSpeed writes its arguments down."""
        return f"PseudoTensor({host(self)!r})"


for _types in (_stepped_together, _taken_together):  # as tensors of a GPU are
    _types.append(PseudoTensor)  # type: ignore[arg-type]


def host(tensor: Tensor) -> Tensor:
    """The same memory as a tensor of the host: to look at numbers without a copy, a wait or a count."""
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


_DYNAMIC = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_COPIES = {"aten::copy_", "aten::_to_copy"}
_OWN = {
    aten._scaled_dot_product_fused_attention_overrideable.default: attention.forward,
    aten._scaled_dot_product_fused_attention_overrideable_backward.default: attention.backward,
    aten._flash_attention_forward.default: attention.packed_forward,
    aten._flash_attention_backward.default: attention.packed_backward,
    aten._efficient_attention_forward.default: attention.efficient_forward,
    aten._efficient_attention_backward.default: attention.efficient_backward,
}


@functools.cache
def _traits(func: Any) -> SimpleNamespace:
    """What is to be known of an operator."""
    return SimpleNamespace(
        name=func._schema.name,
        # of others alone; torch takes it apart before it comes here, where it records gradients
        is_composite=torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        changes=func._schema.is_mutable,
        is_view=any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns),
        is_random=torch.Tag.nondeterministic_seeded in func.tags,
        is_dynamic=bool(_DYNAMIC & set(func.tags)),
        on_host=_OWN.get(func, func),
    )


class _Hosts:
    """Tensors that an operator is given, and those of the host that stand for them within it."""

    def __init__(self) -> None:
        self.given: list[PseudoTensor] = []
        self.strangers: list[Tensor] = []
        """Of the host, and given as such."""
        self._stands_in: dict[int, Tensor] = {}  # by the address of the other
        self._stands_for: dict[int, PseudoTensor] = {}

    def to_host(self, value: Any) -> Any:
        """The argument as it is on the host."""
        if isinstance(value, PseudoTensor):
            if id(value) not in self._stands_in:
                self.given.append(value)
                self._stands_in[id(value)] = plain = host(value)
                self._stands_for[id(plain)] = value
            return self._stands_in[id(value)]
        if isinstance(value, Tensor):
            self.strangers.append(value)
        return type(value)(map(self.to_host, value)) if type(value) in (list, tuple) else value

    def to_device(self, value: Any) -> Any:
        """A result as it is on the device; what was given is given back."""
        if isinstance(value, Tensor):
            return self._stands_for[id(value)] if id(value) in self._stands_for else PseudoTensor(value)
        return type(value)(map(self.to_device, value)) if type(value) in (list, tuple) else value

    def follow(self) -> None:
        """Give the tensors the sizes and memory that an operator in place gave those that stood for them."""
        for tensor in self.given:
            plain = self._stands_in[id(tensor)]
            if (
                tensor.shape != plain.shape
                or tensor.stride() != plain.stride()
                or tensor.storage_offset() != plain.storage_offset()
                or tensor.untyped_storage()._cdata != plain.untyped_storage()._cdata
            ):
                with torch.inference_mode(tensor.is_inference()):
                    tensor.data = PseudoTensor(plain)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """What `F.scaled_dot_product_attention` is on a GPU: one operator."""
    fused = aten._scaled_dot_product_fused_attention_overrideable
    return fused(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]


def _run(func: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator of the device, on the host."""
    traits = _traits(func)
    if func is aten.scaled_dot_product_attention.default:
        return _attend(*args, **kwargs)
    if traits.is_composite:
        return func.decompose(*args, **kwargs)
    hosts = _Hosts()
    with _not_inference():
        host_args = hosts.to_host(args)
        host_kwargs = {key: hosts.to_host(value) for key, value in kwargs.items()}
        of_host = {"device": torch.device("cpu"), "pin_memory": False}
        host_kwargs |= {key: value for key, value in of_host.items() if host_kwargs.get(key)}
        _check_devices(traits, hosts, args)
        target = args[0].device if traits.name == "aten::copy_" else kwargs.get("device")
        stays = bool(hosts.given) if target is None else torch.device(target).type == DEVICE.type
        if METERS:
            _note_waits(traits, args, kwargs, stays)
        with MODULE.random_numbers() if traits.is_random and stays else contextlib.nullcontext():
            out = traits.on_host(*host_args, **host_kwargs)
        if traits.changes:
            hosts.follow()
    if not stays:
        return out
    # a view of a tensor is none of inference mode's own, even there
    with _not_inference() if traits.is_view and not hosts.given[0].is_inference() else contextlib.nullcontext():
        out = hosts.to_device(out)
    if traits.name == "aten::copy_" and hosts.strangers and not isinstance(out, torch.nn.Parameter):
        out.was_on_host = True
    if METERS and not traits.is_view:
        add_call(traits.name, args, hosts.given, out)
    return out


def _not_inference() -> contextlib.AbstractContextManager[None]:
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext()


def _check_devices(traits: SimpleNamespace, hosts: _Hosts, args: Any) -> None:
    """Refuse what a GPU does: tensors of both sides. Numbers of the host are taken, and indices are copied.

    Raises:
        RuntimeError: as torch does.
    """
    changed = args[0] if traits.changes and args else None
    strangers = [x for x in hosts.strangers if x.ndim or x is changed]
    if not hosts.given or not strangers or traits.name in _COPIES:
        return
    if traits.name not in _INDEXING or any(x.dtype.is_floating_point for x in strangers):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{DEVICE} and cpu! ({traits.name})"
        )
    for _ in strangers:
        add_upload()


def _note_waits(traits: SimpleNamespace, args: Any, kwargs: Any, stays: bool) -> None:
    """Note where a GPU makes the host wait: for a number, a copy, or how large a result is."""
    name = traits.name
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
    elif not stays or not traits.is_dynamic:
        return
    elif name == "aten::_local_scalar_dense":
        add_wait("item")
    elif kwargs.get("output_size") is None:
        add_wait(name.removeprefix("aten::"))


_library: Any = torch.library.Library
_everything, _aten = _library("_", "IMPL"), _library("aten", "IMPL")
_everything.fallback(_run, "PrivateUse1")
_aten.impl("scaled_dot_product_attention", _attend, "AutogradPrivateUse1")
if not torch.cuda.is_available():  # beside a GPU memory is pinned for it
    _aten.impl("_pin_memory", _pin, "CPU")
    _aten.impl("is_pinned", _is_pinned, "CPU")
