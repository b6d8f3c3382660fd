"""Many graphs that differ, stored so that a batch of them is a few gathers: on the device, and of fixed shapes."""

from geoskip.training.packed.batch import PackedBatch
from geoskip.training.packed.drawing import Coarsening, Drawing
from geoskip.training.packed.drawn import DrawnStore, drawn_store
from geoskip.training.packed.norms import counting_real
from geoskip.training.packed.store import GraphStore, own_scale, relative, store_set
from geoskip.training.packed.uniform import store_graphs

__all__ = [
    "Coarsening",
    "Drawing",
    "DrawnStore",
    "GraphStore",
    "PackedBatch",
    "counting_real",
    "drawn_store",
    "own_scale",
    "relative",
    "store_graphs",
    "store_set",
]
