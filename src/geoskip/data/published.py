"""The MNIST superpixels of Monti et al. (CVPR 2017), in the file that PyTorch Geometric passes on.

The file was written by ``torch.save``: two lists (60,000 and 10,000 graphs) of mappings with x, edge_index, pos and
y. It is opened with torch's restricted reader, which builds tensors and plain containers and nothing else; a file
that needs more than that is refused.
"""

import io
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from geoskip.data.archives import read_files
from geoskip.data.catalog import PUBLISHED_SUPERPIXELS
from geoskip.data.graph_list import graph_list
from geoskip.data.graph_set import GraphSet

NAME = re.compile(r"(?:.*/)?(MNISTSuperpixels\.pt)")


def published_superpixels(
    place: str | Path | None = None, *, num_coarsenings: int = 2, seed: int = 0, cache: Path | None = None
) -> GraphSet:
    """The published graphs, with coarser levels as for our own superpixels.

    ``place`` is ``MNISTSuperpixels.zip`` or the ``.pt`` in it; without it the data folder is looked at.
    """
    path = PUBLISHED_SUPERPIXELS.find(place)
    parts = _load(path)
    if not (isinstance(parts, list | tuple) and len(parts) == 2 and all(isinstance(p, list | tuple) for p in parts)):
        raise ValueError(f"{path}: not two lists of graphs, for training and test")
    try:
        return graph_list(*parts, num_coarsenings=num_coarsenings, seed=seed, cache=cache)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path}: not graphs that can be used: {error}") from error


def _load(path: Path) -> Any:
    source: Any = path
    if path.suffix == ".zip":
        files = list(read_files(path, NAME))
        if not files:
            raise ValueError(f"{path}: there is no MNISTSuperpixels.pt in it")
        source = io.BytesIO(files[0][1])
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickle, of files that are refused
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, and all mean the same
        raise ValueError(
            f"{path}: not a file of plain tensors. Only such files are read, as others can run code when they are "
            "opened: take MNISTSuperpixels.zip as published, not a processed copy of it."
        ) from error
