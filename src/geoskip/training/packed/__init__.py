"""Many graphs that differ, stored so that a batch of them is a few gathers: on the device, and of fixed shapes."""

from geoskip.training.packed.drawing import Coarsening, Drawing, DrawnStore, drawn_store
from geoskip.training.packed.level import PackedBatch
from geoskip.training.packed.store import GraphStore, own_scale, relative, store_graphs, store_set

__all__ = [
    "Coarsening",
    "Drawing",
    "DrawnStore",
    "GraphStore",
    "PackedBatch",
    "drawn_store",
    "own_scale",
    "relative",
    "store_graphs",
    "store_set",
]
