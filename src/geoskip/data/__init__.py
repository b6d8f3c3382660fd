"""Data sets, generated or read, each as one in-memory record; and the cache that keeps them.

Every name is imported when it is first used, so that the command line does not have to load torch.
"""

# ruff: noqa: F401
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoskip.data.catalog import DATA_SETS, find_data_set
    from geoskip.data.declaration import DataSet, Option, data_set
    from geoskip.data.generated_bodies import bodies, moving_bodies, remeshed_bodies
    from geoskip.data.generated_faces import faces, mixed_faces
    from geoskip.data.graph_sets import GraphLevel, GraphSet
    from geoskip.data.idx import fashion_mnist, mnist
    from geoskip.data.image_sets import image_folder, superpixel_set
    from geoskip.data.mesh_files import coma, correspondence_folder, faust, mesh_folder
    from geoskip.data.mesh_sets import CorrespondenceSet, MeshSet, Shapes, SkinnedShapes, Split, StoredShapes, geodesics
    from geoskip.data.pyg_graphs import graph_list, published_superpixels
    from geoskip.data.template import Template, TemplateError, load_template, prepare_template, save_template

_MODULES = {
    "catalog": "DATA_SETS find_data_set",
    "declaration": "DataSet Option data_set",
    "generated_bodies": "bodies moving_bodies remeshed_bodies",
    "generated_faces": "faces mixed_faces",
    "graph_sets": "GraphLevel GraphSet",
    "idx": "fashion_mnist mnist",
    "image_sets": "image_folder superpixel_set",
    "mesh_files": "coma correspondence_folder faust mesh_folder",
    "mesh_sets": "CorrespondenceSet MeshSet Shapes SkinnedShapes Split StoredShapes geodesics",
    "pyg_graphs": "graph_list published_superpixels",
    "template": "Template TemplateError load_template prepare_template save_template",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'geoskip.data' has no attribute {name!r}")
    return getattr(import_module(f"geoskip.data.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
