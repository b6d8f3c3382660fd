"""Sets as PyTorch Geometric ``Data``, for those who have it (the extra ``pyg``)."""

import warnings
from typing import Any

import torch

from geoskip.meshes.mesh import Mesh


def data_class() -> type[Any]:
    """``torch_geometric.data.Data``; ImportError says what to install."""
    try:
        with warnings.catch_warnings():
            # its import runs torch.jit.script, which torch deprecates: nothing its users can mend
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch_geometric.data import Data
    except ImportError as error:
        raise ImportError("PyTorch Geometric is not installed: pip install geoskip[pyg]") from error
    return Data


def mesh_data(mesh: Mesh) -> Any:
    """A mesh as ``Data``: pos [vertices, 3], face [3, faces], edge_index [2, edges] in both directions."""
    edges = torch.tensor(mesh.edges().T)
    return data_class()(
        pos=torch.tensor(mesh.verts, dtype=torch.float32),
        face=torch.tensor(mesh.faces.T),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
    )
