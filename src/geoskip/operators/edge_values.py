"""What an operator is given for each edge: weights or pseudo-coordinates."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from geoskip.graphs import Graph
from geoskip.graphs.checks import as_tensor
from geoskip.shapes import Float

EdgeValues = Tensor | np.ndarray | None


@runtime_checkable
class UsesEdges(Protocol):
    """What an operator says about itself."""

    uses_edge_weight: ClassVar[bool]
    uses_pseudo: ClassVar[bool]

    def _say(self) -> str: ...


def with_edge_values(
    operator: UsesEdges,
    graph: Graph,
    edge_values: EdgeValues,
    edge_weight: EdgeValues,
    pseudo: EdgeValues,
) -> Graph:
    """``graph`` with the edge weights and pseudo-coordinates that were passed to the operator.

    ``edge_values``, passed by position, are those that it uses. To pass others is an error. A graph may carry
    pseudo-coordinates that the operator does not use, but no such edge weights: without them it is another graph.
    """
    if edge_values is not None:
        edge_values = as_tensor("edge_values", edge_values, graph.device)
        _check_edge_values(operator, edge_values)
        if operator.uses_edge_weight:
            edge_weight = _once("edge_weight", edge_values, edge_weight)
        else:
            pseudo = _once("pseudo", edge_values, pseudo)
    if edge_weight is not None and not operator.uses_edge_weight:
        raise ValueError(f"edge_weight: {operator._say()} does not use edge weights; leave edge_weight out")
    if pseudo is not None and not operator.uses_pseudo:
        raise ValueError(f"pseudo: {operator._say()} does not use pseudo-coordinates; leave pseudo out")
    if graph.given_edge_weight is not None and not operator.uses_edge_weight:
        raise ValueError(
            f"graph: has edge weights, which {operator._say()} does not use; pass graph.without_edge_weight()"
        )
    if pseudo is not None:
        graph = graph.with_pseudo(pseudo)
    return graph if edge_weight is None else graph.with_edge_weight(edge_weight)


def _check_edge_values(operator: UsesEdges, values: Tensor) -> None:
    if not (operator.uses_edge_weight or operator.uses_pseudo):
        raise ValueError(
            f"edge_values: {operator._say()} uses neither edge weights nor pseudo-coordinates; leave the third "
            "argument out"
        )
    if operator.uses_edge_weight and values.dim() == 2 and values.shape[1] != 1:
        raise ValueError(
            f"edge_values: {operator._say()} takes edge weights of shape [edges], got {list(values.shape)}; it does "
            "not use pseudo-coordinates"
        )


def _once(name: str, by_position: Tensor, by_name: EdgeValues) -> Tensor:
    if by_name is not None:
        raise ValueError(f"{name}: was given twice, by position and by name; pass it once")
    return by_position


def pseudo_of(graph: Graph, dim: int, operator: str) -> Float[Tensor, "edges dim"]:
    """The graph's pseudo-coordinates, or an error that says what is missing."""
    if graph.pseudo is None:
        raise ValueError(
            f"graph: {operator} needs pseudo-coordinates; make them with geoskip.graphs.cartesian, polar or "
            "target_degree and attach them, or call conv(x, edge_index, pseudo)"
        )
    if graph.pseudo.shape[1] != dim:
        raise ValueError(
            f"pseudo: {operator} was made with dim={dim}, the graph's pseudo-coordinates have "
            f"{graph.pseudo.shape[1]} dimensions; make it with dim={graph.pseudo.shape[1]}"
        )
    return graph.pseudo
