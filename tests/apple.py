"""An Apple GPU to test with where there is none: tensors on the device ``mps`` whose values are in the CPU's memory.

They behave as on an Apple GPU where code that was written for CPU and CUDA goes wrong: float64 does not exist, and an
operation on tensors of both devices fails. Everything is computed by torch's CPU kernels, so whether Metal has a kernel
for each operation is not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

MPS = torch.device("mps")
# These read or write a tensor of another device.
BETWEEN_DEVICES = {"copy_", "to", "cpu", "type_as", "set_data", "__getitem__", "__setitem__", "index_put_"}
READS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"}


class AppleTensor(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return on_apple(func, args, kwargs or {})


def on_apple(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    name = getattr(func, "__name__", "")
    if getattr(func, "__self__", None) is Tensor.device and isinstance(args[0], AppleTensor):
        return MPS
    if func is torch.device or name == "_parse_to":  # the arguments of Module.to
        return func(*args, **kwargs)
    if name == "_has_compatible_shallow_copy_type":  # whether Module.to may change a parameter in place
        return type(args[0]) is type(args[1])
    leaves = tree_flatten((args, kwargs))[0]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    apple = [tensor for tensor in tensors if isinstance(tensor, AppleTensor)]
    target = _target(name, func, args, kwargs)
    if apple and name not in BETWEEN_DEVICES:
        other = [t for t in tensors if not isinstance(t, AppleTensor) and _dim(t) > 0]
        if other:
            raise RuntimeError(f"{name}: expected all tensors on the same device, found mps and cpu")
    if apple and name == "numpy":
        raise TypeError("can't convert mps device type tensor to numpy; use Tensor.cpu() first")
    with torch._C.DisableTorchFunctionSubclass():
        args, kwargs = tree_map(_on_cpu, (args, kwargs))
        result = func(*args, **kwargs)
    where = target if target is not None else MPS if apple else None
    if name in ("cpu",):
        where = torch.device("cpu")
    return tree_map(lambda leaf: _placed(leaf, where, name), result)


def _target(name: str, func: Any, args: Any, kwargs: Any) -> torch.device | None:
    """The device that a call names."""
    given = kwargs.get("device")
    if given is None and name == "to":
        named = [a for a in args[1:] if isinstance(a, torch.device) or (isinstance(a, str) and a in ("mps", "cpu"))]
        given = named[0] if named else args[1].device if len(args) > 1 and isinstance(args[1], Tensor) else None
    return None if given is None else torch.device(given)


def _on_cpu(leaf: Any) -> Any:
    if isinstance(leaf, torch.device) and leaf.type == "mps":
        return torch.device("cpu")
    return "cpu" if isinstance(leaf, str) and leaf == "mps" else leaf


def _dim(tensor: Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.dim()


def _placed(leaf: Any, where: torch.device | None, name: str) -> Any:
    if not isinstance(leaf, Tensor) or where is None:
        return leaf
    with torch._C.DisableTorchFunctionSubclass():
        if where.type != "mps":
            return leaf.as_subclass(Tensor) if isinstance(leaf, AppleTensor) else leaf
        if leaf.dtype == torch.float64:
            raise TypeError(f"{name}: the MPS framework doesn't support float64")
        if isinstance(leaf, AppleTensor):
            return leaf
        if leaf.is_leaf and leaf.requires_grad:
            return leaf.detach().as_subclass(AppleTensor).requires_grad_()
        return leaf.as_subclass(AppleTensor)


class _Factories(TorchFunctionMode):
    """``torch.zeros(…, device="mps")`` and ``tensor.to("mps")``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return on_apple(func, args, kwargs or {})


@contextmanager
def apple_gpu() -> Iterator[torch.device]:
    with _Factories():
        yield MPS
