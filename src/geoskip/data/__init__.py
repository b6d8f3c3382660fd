"""Data sets, generated or read, each as one in-memory record; and the cache that keeps them.

Every name is imported when it is first used, so that the command line does not have to load torch.
"""

# ruff: noqa: F401
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoskip.data.catalog import DATA_SETS, find_data_set
    from geoskip.data.correspondence_set import CorrespondenceSet
    from geoskip.data.declaration import DataSet, Option, data_set
    from geoskip.data.graph_set import GraphLevel, GraphSet
    from geoskip.data.mesh_set import MeshSet, Shapes, StoredShapes
    from geoskip.data.split import Split

_MODULES = {
    "catalog": ("DATA_SETS", "find_data_set"),
    "correspondence_set": ("CorrespondenceSet",),
    "declaration": ("DataSet", "Option", "data_set"),
    "graph_set": ("GraphLevel", "GraphSet"),
    "mesh_set": ("MeshSet", "Shapes", "StoredShapes"),
    "split": ("Split",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'geoskip.data' has no attribute {name!r}")
    return getattr(import_module(f"geoskip.data.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
