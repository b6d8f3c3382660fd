"""Shapes in signatures: ``Float[Tensor, "*batch vertices channels"]``.

The axis names that recur are ``vertices`` (receivers of messages), ``senders``, ``edges``, ``slots`` (the
paper's M, one per weight matrix), ``channels`` / ``out`` (features), ``dim`` (pseudo-coordinates) and
``*batch`` (items that share one graph).

The annotations are jaxtyping's. They are executed under the tests only, so the package runs without
jaxtyping; then ``Float[Tensor, "…"]`` is just ``Tensor``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = Shaped = _Unchecked

__all__ = ["Bool", "Float", "Int", "Shaped"]
