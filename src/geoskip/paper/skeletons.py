"""The models of the rows at the paper's sizes, before there is any data: what they cost."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import torch
from torch import nn

from geoskip.graphs import Graph, SparseMatrix
from geoskip.graphs.hierarchy import Hierarchy
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.paper.rows import Row

# CoMA's template under quadric decimation by 4, four times; the template of FAUST; the digits.
COMA_SIZES = (5023, 1256, 314, 79, 20)
FAUST_CLASSES = 6890
DIGITS = 10


def skeleton(row: Row) -> nn.Module:
    """The row's model, where it needs one on a template of the right size that has no edges."""
    chosen = {"operator": row.operator, "skip": row.skip, "kernel_size": row.kernel_size, **row.options}
    with torch.random.fork_rng(devices=[]):
        if row.experiment == "reconstruction":
            return MeshAutoencoder(hollow_hierarchy(COMA_SIZES), **chosen)
        if row.experiment == "correspondence":
            return CorrespondenceNet(FAUST_CLASSES, **chosen)
        return GraphClassifier(dim=1 if row.pseudo == "degree" else 2, classes=DIGITS, **chosen)


def num_parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@cache
def hollow_hierarchy(sizes: tuple[int, ...], dim: int = 3) -> Hierarchy:
    """Levels of the given sizes without edges, and matrices without entries."""
    none = torch.empty(0, dtype=torch.long)
    levels = [Graph.from_edge_index(torch.stack([none, none]), size, torch.empty(0, dim)) for size in sizes]
    up = [SparseMatrix.from_entries(none, none, torch.empty(0), step) for step in pairwise(sizes)]
    down = [SparseMatrix.from_entries(none, none, torch.empty(0), step[::-1]) for step in pairwise(sizes)]
    return Hierarchy.from_matrices(levels, down, up)
