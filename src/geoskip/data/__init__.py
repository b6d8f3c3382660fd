"""Data sets, generated or read, each as one in-memory record; and the cache that keeps them."""

# ruff: noqa: I001
from typing import TYPE_CHECKING

from geoskip.registry import lazy_names

if TYPE_CHECKING:
    from geoskip.data.catalog import DATA_SETS as DATA_SETS, find_data_set as find_data_set
    from geoskip.data.declaration import DataSet as DataSet, Option as Option, data_set as data_set
    from geoskip.data.generated_bodies import (
        bodies as bodies,
        moving_bodies as moving_bodies,
        remeshed_bodies as remeshed_bodies,
    )
    from geoskip.data.generated_faces import faces as faces, mixed_faces as mixed_faces
    from geoskip.data.graph_sets import GraphLevel as GraphLevel, GraphSet as GraphSet
    from geoskip.data.idx import fashion_mnist as fashion_mnist, mnist as mnist
    from geoskip.data.image_sets import image_folder as image_folder, superpixel_set as superpixel_set
    from geoskip.data.mesh_files import (
        coma as coma,
        correspondence_folder as correspondence_folder,
        faust as faust,
        mesh_folder as mesh_folder,
    )
    from geoskip.data.mesh_sets import (
        CorrespondenceSet as CorrespondenceSet,
        MeshSet as MeshSet,
        Shapes as Shapes,
        SkinnedShapes as SkinnedShapes,
        Split as Split,
        StoredShapes as StoredShapes,
        geodesics as geodesics,
    )
    from geoskip.data.pyg_graphs import graph_list as graph_list, published_superpixels as published_superpixels
    from geoskip.data.template import (
        Template as Template,
        TemplateError as TemplateError,
        load_template as load_template,
        prepare_template as prepare_template,
        save_template as save_template,
    )

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
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
    },
)
