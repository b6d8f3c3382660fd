"""Graphs one by one: from PyTorch Geometric, and the published superpixels in a file that must hold tensors only."""

import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from geoskip.data import graph_list, published_superpixels
from geoskip.data.declaration import MissingData
from geoskip.data.mesh_sets import pyg_data


def ring(size: int, label: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    after = torch.arange(size).roll(-1)
    edges = torch.stack([torch.arange(size), after])
    return {
        "x": torch.rand(size, 1, generator=generator),
        "pos": torch.rand(size, 2, generator=generator),
        "edge_index": torch.cat([edges, edges.flip(0)], dim=1),
        "y": torch.tensor([label]),
    }


RINGS = [ring(8, 0), ring(5, 1, 1), ring(300, 2, 2)]


def test_graphs_are_packed_as_they_are(tmp_path: Path) -> None:
    graphs = graph_list(RINGS[:2], RINGS[2:], cache=tmp_path)
    for number, original in enumerate(RINGS):
        one = graphs.select(torch.tensor([number]))
        assert torch.equal(one.x, original["x"])
        assert torch.equal(one.levels[0].pos, original["pos"])
        assert torch.equal(one.levels[0].edge_index, original["edge_index"])
    assert graphs.labels.tolist() == [0, 1, 2]
    assert graphs.class_names == ("0", "1", "2")
    assert graphs.split.test.tolist() == [2]
    assert len(graphs.levels[0].pos) == 313
    assert len(graphs.levels) == 3


def test_a_pyg_dataset_becomes_a_set_and_back(tmp_path: Path) -> None:
    data = [pyg_data()(**graph) for graph in RINGS]
    graphs = graph_list(data[:2], data[2:], class_names=("a", "b", "c"), cache=tmp_path)
    back = list(graphs.pyg())
    for original, again in zip(data, back, strict=True):
        assert all(torch.equal(original[name], again[name]) for name in ("x", "pos", "edge_index", "y"))


def test_features_and_positions_may_be_absent(tmp_path: Path) -> None:
    bare = [{"edge_index": graph["edge_index"], "y": graph["y"], "num_nodes": len(graph["x"])} for graph in RINGS[:2]]
    graphs = graph_list(bare, [], cache=tmp_path)
    assert graphs.x.tolist() == [[1.0]] * 13
    assert graphs.levels[0].pos.shape == (13, 0)
    assert graphs.levels[1].offsets[-1] < 13


def test_graphs_without_edges_stay_as_they_are(tmp_path: Path) -> None:
    lonely = {"x": torch.ones(3, 1), "edge_index": torch.zeros(2, 0, dtype=torch.int64), "y": torch.tensor(0)}
    graphs = graph_list([lonely], [], cache=tmp_path)
    assert [len(level.pos) for level in graphs.levels] == [3, 3, 3]


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"y": None}, "must be tensors"),
    ({"edge_index": None}, "must be tensors"),
    ({"x": None, "pos": None}, "how many vertices"),
    ({"pos": torch.zeros(3, 2)}, "one row per vertex"),
    ({"x": torch.full((8, 1), float("nan"))}, "finite"),
    ({"edge_index": torch.zeros(3, 2, dtype=torch.int64)}, r"shape \[2, edges\]"),
    ({"edge_index": torch.zeros(2, 2)}, r"integers of shape"),
    ({"edge_index": torch.tensor([[0], [8]])}, "outside 0 to 7"),
    ({"edge_index": torch.tensor([[0], [-1]])}, "outside 0 to 7"),
    ({"y": torch.tensor([0, 1])}, "one class"),
    ({"y": torch.tensor([0.5])}, "one class"),
    ({"y": torch.tensor([-1])}, "one class"),
    ({"edge_weight": torch.ones(16)}, "has edge_weight, which .* does not keep; remove it"),
]


@pytest.mark.parametrize(("change", "fault"), FAULTS)
def test_bad_graphs_are_refused_by_number(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"training graph 1: .*{fault}"):
        graph_list([RINGS[0], RINGS[0] | change], [])
    with pytest.raises(ValueError, match="test graph 0"):
        graph_list([RINGS[0]], [RINGS[0] | change])


def test_sets_of_nothing_or_of_mixed_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one graph"):
        graph_list([], [])
    with pytest.raises(ValueError, match="x of the same width"):
        graph_list([RINGS[0], RINGS[0] | {"x": torch.ones(8, 2)}], [])
    with pytest.raises(ValueError, match="pos of the same width"):
        graph_list([RINGS[0], RINGS[0] | {"pos": torch.ones(8, 3)}], [])


def test_the_published_file_is_read_from_pt_and_zip(tmp_path: Path) -> None:
    torch.save((RINGS[:2], RINGS[2:]), tmp_path / "MNISTSuperpixels.pt")
    with zipfile.ZipFile(tmp_path / "MNISTSuperpixels.zip", "w") as archive:
        archive.write(tmp_path / "MNISTSuperpixels.pt", "MNISTSuperpixels.pt")
    for name in ("MNISTSuperpixels.pt", "MNISTSuperpixels.zip"):
        graphs = published_superpixels(tmp_path / name, cache=tmp_path / "cache")
        assert len(graphs) == 3
        assert graphs.split.test.tolist() == [2]


class Attack:
    """Runs code when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def test_a_file_that_could_run_code_is_refused_unopened(tmp_path: Path) -> None:
    torch.save((Attack(tmp_path / "mark"), []), tmp_path / "a.pt")
    with pytest.raises(ValueError, match="not a file of plain tensors"):
        published_superpixels(tmp_path / "a.pt")
    assert not (tmp_path / "mark").exists()
    torch.save(([pyg_data()(**RINGS[0])], []), tmp_path / "b.pt")
    with pytest.raises(ValueError, match="not a file of plain tensors"):
        published_superpixels(tmp_path / "b.pt")


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    torch.save(OrderedDict(a=torch.ones(1)), tmp_path / "a.pt")
    with pytest.raises(ValueError, match="not two lists"):
        published_superpixels(tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a file of plain tensors"):
        published_superpixels(tmp_path / "b.pt")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("other.txt", "x")
    with pytest.raises(ValueError, match=r"no MNISTSuperpixels\.pt"):
        published_superpixels(tmp_path / "c.zip")


def test_a_missing_file_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=r"MNISTSuperpixels\.zip.*https://data\.pyg\.org.*Put it at"):
        published_superpixels()
