"""The operators that a kernel registers follow torch's rules: schema, shapes and strides for tracing, gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch.utils._python_dispatch import TorchDispatchMode

from geoskip.kernels import functional, use_path
from geoskip.kernels.autograd import Kernel, _call_directly
from tests.kernels.paths import Sizes, drawn, edges

pytestmark = pytest.mark.compiled

SIZES = Sizes(3, 4, 2, (13,), 6)
PATHS = {
    "basis_convolution": ("fast", "interpreter"),
    "gaussian_convolution": ("interpreter",),
    "softmax_convolution": ("interpreter",),
    "softmax_basis": ("fast",),
    "chebyshev_convolution": ("fast", "interpreter"),
    "sparse_product": ("fast", "interpreter"),
    "max_pool": ("fast", "interpreter"),
    "mean_pool": ("fast", "interpreter"),
    "segment_mean": ("fast", "interpreter"),
    "linear": ("interpreter",),
}


def values(*shape: int, seed: int) -> Tensor:
    return drawn(*shape, seed=seed).float().requires_grad_()


def inputs(name: str) -> tuple[Any, ...]:
    """Of an operator; a pattern is six tensors."""
    pattern = edges(SIZES, loops=True)
    count, batch = pattern.num_edges, SIZES.batch[0]
    x = values(batch, SIZES.vertices, SIZES.channels, seed=1)
    theta, skip = values(2, 3, 4, seed=2), values(3, 4, seed=3)
    fixed, scores = drawn(count, seed=5).float().abs(), values(batch, SIZES.vertices, 2, seed=6)
    tensors = [pattern.senders, pattern.receivers, None, pattern.offsets, pattern.by_sender, pattern.sender_offsets]
    own = skip, values(4, seed=4)
    by_name: dict[str, list[Any]] = {
        "basis_convolution": [x, values(2, count, 1, seed=7), theta, *tensors, *own],
        "gaussian_convolution": [
            *(x, values(count, 2, seed=7), values(2, 2, seed=8), values(2, 2, seed=9), theta, *tensors, *own)
        ],
        "softmax_convolution": [
            *(x, values(2, 3, seed=7), None, values(2, seed=8), fixed, theta, *tensors, *own),
        ],
        "softmax_basis": [scores, scores.detach() * 2, values(2, seed=8), fixed, *tensors],
        "chebyshev_convolution": [x, fixed, theta, *tensors, 1, *own],
        "sparse_product": [x, fixed, *tensors],
        "max_pool": [x, *tensors],
        "mean_pool": [x, *tensors],
        "segment_mean": [x, torch.tensor([0, 2, 2, 5])],
        "linear": [x, values(4, 3, seed=2), values(4, seed=4)],
    }
    return tuple(by_name[name])


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in PATHS.items() for path in paths])
def test_operators_follow_the_rules_of_torch(name: str, path: str) -> None:
    kernel: Kernel = getattr(functional, f"_{name}")
    with use_path(path):
        torch.library.opcheck(kernel._op, inputs(name))


@pytest.mark.parametrize("name", sorted(PATHS))
def test_compiled_code_calls_operators_without_gradients(name: str) -> None:
    """Outside of a trace, they run the kernel without the dispatcher."""
    kernel: Kernel = getattr(functional, f"_{name}")
    assert torch._C._dispatch_has_kernel_for_dispatch_key(kernel._op.name(), "Autograd")
    for op in (kernel._forward_op, kernel._gradients_op):
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Autograd")
    targets: set[Any] = set()

    def note(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        targets.update(node.target for node in gm.graph.nodes)
        return make_boxed_func(gm.forward)

    values = inputs(name)
    with use_path(PATHS[name][0]):
        call = aot_function(lambda *given: kernel._op(*given), note, note)
        call(*values).sum().backward()
    assert {kernel._forward_op, kernel._gradients_op} <= targets
    assert kernel._op not in targets


class _Calls(TorchDispatchMode):
    """Notes the operators that the dispatcher is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", sorted(PATHS))
def test_traces_see_the_operators_that_compiled_code_calls_directly(name: str) -> None:
    kernel: Kernel = getattr(functional, f"_{name}")
    given = [value.detach() if isinstance(value, Tensor) else value for value in inputs(name)]
    with use_path(PATHS[name][0]):
        output = kernel._forward_op(*given)
        with _Calls() as calls:
            torch.testing.assert_close(kernel._forward_op(*given), output)
    assert kernel._forward_op in calls.ops


def test_an_operator_that_has_no_direct_call_goes_through_the_dispatcher() -> None:
    """That it has one is not part of torch's interface."""
    op = SimpleNamespace()
    _call_directly(op, Mock())
    assert vars(op) == {}


def test_every_kernel_with_an_operator_is_tried() -> None:
    kernels = [value for value in vars(functional).values() if isinstance(value, Kernel)]
    assert {kernel.name for kernel in kernels if hasattr(kernel, "_op")} == set(PATHS)


@pytest.mark.parametrize("num_axes", [1, 2])
def test_weights_without_items_or_slots(num_axes: int) -> None:
    """Triton's kernels take weights [edges] and [slots, edges]."""
    x, weights, theta, *others = inputs("basis_convolution")
    theta = theta.detach()[: num_axes if num_axes == 2 else 1].requires_grad_()
    weights = weights.detach()[:, :, 0] if num_axes == 2 else weights.detach()[0, :, 0]
    with use_path("interpreter"):
        torch.library.opcheck(functional._basis_convolution._op, (x, weights.requires_grad_(), theta, *others))


def test_features_that_have_escaped_from_a_transform() -> None:
    escaped: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        escaped.append(2 * x)
        return x.sum()

    torch.func.grad(function)(drawn(6, 3, seed=1).float())
    pattern, theta = edges(SIZES), drawn(3, 4, seed=2).float().requires_grad_()
    weights = drawn(pattern.num_edges, seed=3).float()
    found = []
    for path in ("reference", "interpreter"):
        with use_path(path):
            y = functional.basis_convolution(escaped[0], weights, theta, pattern)
            found.append([y, *torch.autograd.grad(y.square().sum(), [theta])])
    torch.testing.assert_close(found[1], found[0])
