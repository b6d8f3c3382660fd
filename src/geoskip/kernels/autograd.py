"""Fast kernels as nodes of autograd and as operators of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from geoskip.kernels import reference
from geoskip.kernels.paths import is_stand_in, is_traced, is_transformed, kernels_for
from geoskip.kernels.pattern import Pattern

_PATTERN = tuple(field.name for field in fields(Pattern))
_PATTERN_SCHEMA = ", ".join(f"Tensor{'?' if name == 'groups_of' else ''} {name}" for name in _PATTERN)
_LIBRARY = Library("geoskip", "FRAGMENT")
_unsafe_view = torch.ops.aten._unsafe_view.default


class Kernel:
    """A function that has fast kernels, as one node of autograd.

    The modules ``cpu`` and ``triton`` (or one of them) have ``name(*inputs)``, and
    ``name_gradients(grad_y, needs, *inputs, *saved)``, which returns a gradient or None for each input. The first
    input is x.

    It is a ``torch.autograd.Function``. While torch traces, it is called as the operator ``geoskip::name``: opaque and
    with known shapes. What ``torch.compile`` makes of it calls the kernels as ``geoskip::name_forward`` and
    ``geoskip::name_gradients``. These have no gradients, and outside of a trace they do not pass through torch's
    dispatcher, which takes longer than some of the kernels.

    The kernels of the gradients have no gradients themselves. A backward pass that will be differentiated again
    (``create_graph=True``) or transformed (``torch.func``) uses the gradients of the reference formula instead.

    Args:
        name: of the functions and of the operator.
        schema: the inputs in the schema language of ``torch.library``, with ``PATTERN`` for a :class:`Pattern`.
            Without a schema there is no operator, and the kernel must not be called while torch traces.
        fake: a function of the inputs that returns empty outputs, for tracing.
        formula: the same function in plain PyTorch, by default the one in :mod:`geoskip.kernels.reference`.
        num_saved: how many tensors the kernel returns after y, to save them for its gradients.
        saves_output: whether its gradients need y, after those tensors.
        is_linear: whether y is linear in x. Then x is saved for the gradient of the second input alone.
    """

    def __init__(
        self,
        name: str,
        schema: str = "",
        fake: Callable[..., Any] | None = None,
        formula: Callable[..., Tensor] | None = None,
        num_saved: int = 0,
        saves_output: bool = False,
        is_linear: bool = False,
    ) -> None:
        self.name, self.num_saved, self.saves_output, self.is_linear = name, num_saved, saves_output, is_linear
        self._gradients_name = f"{name}_gradients"
        self.formula = formula or getattr(reference, name)
        node = self._node(self.forward)
        # The latter in C, without the wrapper in Python that unpacks what has escaped from a transform of torch.func.
        self._careful_apply, self._apply = node.apply, super(torch.autograd.Function, node).apply  # type: ignore[misc]
        # Positions of the inputs that are no tensors.
        self._others = [at for at, input in enumerate(schema.split(", ")) if schema and not input.startswith("Tensor")]
        if fake is not None:
            self._pattern_at = schema.split(", ").index("PATTERN") if "PATTERN" in schema else None
            self._register(schema.replace("PATTERN", _PATTERN_SCHEMA), fake)

    def on(self, x: Tensor) -> Callable[..., Tensor]:
        """The function to call: the operator while torch traces, otherwise the node, which nothing needs without
        gradients."""
        if is_traced(x):
            return self._call_op
        if torch._C._functorch.unwrap_if_dead(x) is not x:
            return self._careful_apply
        return self._apply if torch.is_grad_enabled() else self._call_kernel

    def _call_kernel(self, *inputs: Any) -> Tensor:
        output = getattr(kernels_for(inputs[0]), self.name)(*inputs)
        return output[0] if self.num_saved else output

    def _node(self, forward: Callable[..., Tensor]) -> type[torch.autograd.Function]:
        methods = {"forward": staticmethod(forward), "backward": staticmethod(self.backward)}
        return type(self.name, (torch.autograd.Function,), methods)

    def forward(self, ctx: Any, *inputs: Any) -> Tensor:
        # Backward may run where another path is chosen.
        ctx.kernels = kernels = kernels_for(inputs[0])
        return self._save(ctx, inputs, getattr(kernels, self.name)(*inputs))

    def _traced_forward(self, ctx: Any, *inputs: Any) -> Tensor:
        """Of the operator ``geoskip::name``, which a trace takes apart."""
        ctx.kernels = kernels_for(inputs[0])
        return self._save(ctx, inputs, self._forward_op(*self._flat(inputs)))

    def _save(self, ctx: Any, inputs: Sequence[Any], output: Any) -> Tensor:
        """Save what the gradients need, and return y."""
        y, *saved = output if self.num_saved else (output,)
        if y._is_view():
            # Autograd would not let users change a view in place. It notices changes of what it returns alone.
            y = _unsafe_view(y, y.shape)
        tensors = list(inputs)
        ctx.others = others = []
        for at in self._others:
            others.append(inputs[at])
            tensors[at] = None
        if self.is_linear and not inputs[1].requires_grad:
            tensors[0] = None
        tensors += saved
        if self.saves_output:
            tensors.append(y)
        ctx.save_for_backward(*tensors)
        return y

    def backward(self, ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        needs: tuple[bool, ...] = ctx.needs_input_grad
        values = list(ctx.saved_tensors)
        for at, value in zip(self._others, ctx.others, strict=True):
            values[at] = value
        if must_be_differentiable(grad_y):
            inputs = values[: len(needs)]
            if inputs[0] is None:
                inputs[0] = _features(grad_y, inputs).requires_grad_()
            return formula_gradients(self.formula, inputs, needs, grad_y)
        if is_traced(grad_y):
            gradients = iter(self._gradients_op(grad_y, list(needs), *self._flat(values)))
            return tuple(next(gradients) if need else None for need in needs)
        return getattr(ctx.kernels, self._gradients_name)(grad_y, needs, *values)

    def _register(self, inputs: str, fake: Callable[..., Any]) -> None:
        """Define the operators. Each tensor of the pattern is an input of them."""

        def run(*flat: Any) -> Any:
            return getattr(kernels_for(flat[0]), self.name)(*self._nested(flat))

        def run_gradients(grad_y: Tensor, needs: list[bool], *flat: Any) -> list[Tensor]:
            gradients = getattr(kernels_for(grad_y), self._gradients_name)(grad_y, needs, *self._nested(flat))
            return [gradient for gradient in gradients if gradient is not None]

        def fake_gradients(grad_y: Tensor, needs: list[bool], *flat: Any) -> list[Tensor]:
            values = list(self._nested(flat))
            if values[0] is None:
                values[0] = _features(grad_y, values)
            return [torch.empty_like(value) for value, need in zip(values, needs, strict=False) if need]

        outputs = f"({', '.join(['Tensor'] * (1 + self.num_saved))})" if self.num_saved else "Tensor"
        # Features that were not saved are None.
        optional = inputs.replace("Tensor x", "Tensor? x", 1)
        saved = "".join(f", Tensor saved_{k}" for k in range(self.num_saved + self.saves_output))
        gradients = f"(Tensor grad_y, bool[] needs, {optional}{saved}) -> Tensor[]"
        self._forward_op = _define(f"{self.name}_forward", f"({inputs}) -> {outputs}", run, self._fake(fake))
        self._gradients_op = _define(f"{self.name}_gradients", gradients, run_gradients, fake_gradients)
        _call_directly(self._forward_op, run)
        _call_directly(self._gradients_op, run_gradients)
        self._op = _define(self.name, f"({inputs}) -> Tensor", self._first(run), self._fake(self._first(fake)))
        traced = self._node(self._traced_forward).apply
        _LIBRARY.impl(self.name, lambda *flat: traced(*self._nested(flat)), "Autograd")

    def _fake(self, fake: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *flat: fake(*self._nested(flat))

    def _first(self, function: Callable[..., Any]) -> Callable[..., Tensor]:
        """The function without the outputs that are saved for the gradients."""
        return (lambda *inputs: function(*inputs)[0]) if self.num_saved else function

    def _call_op(self, *inputs: Any) -> Tensor:
        return self._op(*self._flat(inputs))

    def _flat(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        at = self._pattern_at
        if at is None:
            return tuple(inputs)
        tensors = [getattr(inputs[at], name) for name in _PATTERN]
        return *inputs[:at], *tensors, *inputs[at + 1 :]

    def _nested(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        at = self._pattern_at
        if at is None:
            return tuple(flat)
        after = at + len(_PATTERN)
        return *flat[:at], Pattern(*flat[at:after]), *flat[after:]


def _define(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Define the operator ``geoskip::name``, without gradients."""
    # The kernels read tensors in the layout that they were traced with.
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"geoskip::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.geoskip, name).default


def _call_directly(op: Any, run: Callable[..., Any]) -> None:
    """Have ``op(…)``, as compiled code calls it, run the kernel without torch's dispatcher, unless torch traces or
    transforms."""
    # Not part of torch's interface: without it, the operator goes through the dispatcher.
    dispatch = getattr(op, "_op", None)
    if dispatch is None:
        return

    def call(x: Tensor, *rest: Any) -> Any:
        return dispatch(x, *rest) if is_stand_in(x) or is_transformed() else run(x, *rest)

    op._op = call


def must_be_differentiable(grad_y: Tensor) -> bool:
    """Inside a backward pass: whether its result will be differentiated (``create_graph=True``) or transformed
    (``torch.func``, ``is_grads_batched=True``)."""
    return torch.is_grad_enabled() or is_transformed() or torch._C._functorch.is_legacy_batchedtensor(grad_y)


def formula_gradients(
    formula: Callable[..., Tensor], inputs: Sequence[Any], needs: Sequence[bool], grad_y: Tensor
) -> tuple[Tensor | None, ...]:
    """The needed gradients of ``formula(*inputs)``, None for the others; differentiable if gradients are enabled."""
    with torch.enable_grad():
        # Each input gets a node of its own, so that an input which depends on another one adds nothing to its gradient.
        leaves = [value.view_as(value) if need else value for value, need in zip(inputs, needs, strict=True)]
        y = formula(*leaves)
    needed = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
    create_graph = torch.is_grad_enabled()
    grads = iter(torch.autograd.grad(y, needed, grad_y.to(y.dtype), create_graph=create_graph, materialize_grads=True))
    return tuple(next(grads) if need else None for need in needs)


def _features(grad_y: Tensor, inputs: Sequence[Any]) -> Tensor:
    """Zeros in the shape of features that were not saved: y is linear in them, so their values do not matter."""
    pattern = next(value for value in inputs if isinstance(value, Pattern))
    shape = *grad_y.shape[:-2], pattern.num_senders, grad_y.shape[-1]
    # Not grad_y.new_zeros, which may be a batch of them (is_grads_batched=True).
    return torch.zeros(shape, dtype=grad_y.dtype, device=grad_y.device)
