"""Checks of what users pass in. Checks of values are skipped while torch traces or captures a CUDA graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.arguments import as_whole, short_repr
from geoskip.kernels import is_traced, is_transformed, paths


def values_readable(tensor: Tensor) -> bool:
    """Whether the tensor has values, and reading one is allowed here."""
    if is_traced(tensor) or is_transformed() or tensor.numel() == 0 or tensor.is_meta:
        return False
    if paths.current_recording() is not None:
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def widest_float(device: torch.device) -> torch.dtype:
    """The most accurate dtype of a device: Apple GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def as_tensor(name: str, value: Any, device: torch.device | None = None) -> Tensor:
    """A tensor as it is; a NumPy array as a tensor on ``device``."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:
            raise TypeError(f"{name}: expected a dense tensor, got one of layout {value.layout}")
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        # Copied: the array may be read-only, reversed, unsigned or in another byte order.
        dtype = np.int64 if value.dtype.kind in "iu" else value.dtype.newbyteorder("=")
        return torch.tensor(np.array(value, dtype), device=device)
    raise TypeError(f"{name}: expected a tensor or a NumPy array, got {short_repr(value)}")


def check_num_vertices(num_vertices: int) -> int:
    if isinstance(num_vertices, torch.SymInt):
        return num_vertices
    number = as_whole(num_vertices)
    if number is None:
        raise TypeError(f"num_vertices: expected a whole number, got {short_repr(num_vertices)}")
    if number < 0:
        raise ValueError(f"num_vertices: a graph has 0 vertices or more, got {number}")
    return number


def check_edge_index(edge_index: Tensor, num_vertices: int) -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"edge_index: expected shape [2, edges] (row 0 sends, row 1 receives), got {list(edge_index.shape)}"
        )
    check_indices("edge_index", edge_index, num_vertices)


def check_faces(faces: Tensor, num_vertices: int) -> None:
    if faces.dim() != 2 or (faces.shape[1] < 3 and faces.shape[0] != 3):
        raise ValueError(f"faces: expected shape [faces, corners] with 3 corners or more, got {list(faces.shape)}")
    if faces.shape[0] == 3 and (faces.shape[1] != 3 or _only_columns_are_triangles(faces)):
        raise ValueError(
            f"faces: shape {list(faces.shape)} looks like one column per face, as in PyTorch Geometric's data.face. "
            "Pass one row per face, faces.t(), or use Graph.from_pyg(data)"
        )
    check_indices("faces", faces, num_vertices)
    if faces.is_meta:
        raise ValueError("faces: are on the meta device, but the number of edges depends on their values")


def _only_columns_are_triangles(faces: Tensor) -> bool:
    """Of 3 × 3 corners: whether a row names a vertex twice and no column does."""
    if not values_readable(faces):
        return False
    rows, columns = ((lines == lines.roll(1, dims=1)).any() for lines in (faces, faces.t()))
    return bool(rows & ~columns)


def faces_of_pyg(data: Any) -> Tensor:
    """The faces of a PyTorch Geometric ``Data`` without ``edge_index``, one row per face."""
    face = getattr(data, "face", None)
    if face is None:
        raise ValueError("data: has neither edge_index nor face. Give it one of them")
    for name in ("edge_attr", "edge_weight"):
        if getattr(data, name, None) is not None:
            raise ValueError(f"data: has {name} but no edge_index that says which edges they belong to. Add edge_index")
    if face.dim() != 2 or face.shape[0] != 3:
        raise ValueError(f"data.face: expected shape [3, faces], got {list(face.shape)}")
    check_indices("data.face", face, data.num_nodes)
    return face.t()


def check_indices(name: str, indices: Tensor, num_vertices: int, lowest: int = 0) -> None:
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        advice = "; convert with .long()" if indices.is_floating_point() else ""
        raise TypeError(f"{name}: expected whole numbers, got {indices.dtype}{advice}")
    if not values_readable(indices):
        return
    # One transfer: the host waits for each. torch cannot compare all whole numbers without a sign.
    low, high = torch.stack(torch.aminmax(indices.long())).tolist()
    if low < lowest or high >= num_vertices:
        wrong = low if low < lowest else high
        raise ValueError(
            f"{name}: vertex {wrong} does not exist; there are {num_vertices} vertices, so indices run from "
            f"{lowest} to {num_vertices - 1}. Fix the indices or the number of vertices"
        )


def check_pseudo(name: str, pseudo: Tensor, num_edges: int, device: torch.device) -> None:
    if pseudo.dim() != 2 or pseudo.shape[0] != num_edges or pseudo.shape[1] == 0:
        advice = {
            (num_edges,): "; a single coordinate needs the shape [edges, 1]",
            (num_edges, 0): ", which has no coordinates",
        }.get(tuple(pseudo.shape), "")
        raise ValueError(
            f"{name}: expected shape [edges, dim] with {num_edges} edges, got {list(pseudo.shape)}{advice}"
        )
    check_real_values(name, pseudo, "edge", device)


def check_edge_weight(weight: Tensor, num_edges: int, device: torch.device) -> None:
    if weight.dim() != 1 or weight.shape[0] != num_edges:
        squeeze = list(weight.shape) == [num_edges, 1]
        raise ValueError(
            f"edge_weight: expected shape [edges] with {num_edges} edges, got {list(weight.shape)}"
            + ("; pass edge_weight.squeeze(1)" if squeeze else "; give one number per edge")
        )
    check_real_values("edge_weight", weight, "edge", device)


def check_real_values(name: str, values: Tensor, owner: str, device: torch.device) -> None:
    """Finite floating-point values, one row per ``owner`` (edge or vertex), on the graph's device."""
    check_floating(name, values)
    check_device(name, values.device, device)
    if values_readable(values) and not bool(values.isfinite().all()):
        row = int((~values.isfinite()).reshape(len(values), -1).any(dim=1).nonzero()[0])
        raise ValueError(f"{name}: {owner} {row} has {values[row].tolist()}, not finite; fix or drop that {owner}")


def check_floating(name: str, values: Tensor) -> None:
    if not values.is_floating_point():
        advice = "" if values.is_complex() else "; convert with .float()"
        raise TypeError(f"{name}: expected floating-point numbers, got {values.dtype}{advice}")
    if values.layout is not torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got one of layout {values.layout}; call .to_dense()")


def check_spirals(spirals: Tensor, num_vertices: int, device: torch.device) -> None:
    if spirals.dim() != 2 or spirals.shape[0] != num_vertices:
        raise ValueError(
            f"spirals: expected shape [vertices, length] with {num_vertices} vertices, got {list(spirals.shape)}"
        )
    check_indices("spirals", spirals, num_vertices, lowest=-1)
    check_device("spirals", spirals.device, device)


def check_device(name: str, device: torch.device, expected: torch.device, owner: str = "the graph") -> None:
    if device != expected:
        raise ValueError(f"{name}: is on {device}, {owner} on {expected}; move one with .to()")
