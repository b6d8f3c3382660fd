"""Every public function, with every argument wrong in every way: the right answer, or an error that names the argument.

The tables say what a good call looks like (``CALLS``) and how an argument of a kind can be wrong (``WRONG``). All pairs
are tried. Where an error gives advice that can be carried out on the argument, it is, and the error has to change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg_nn
from scipy.sparse import coo_array
from torch import Tensor, nn
from torch_geometric.data import Data

from geoskip.blocks import (
    AffineSkip,
    PolynomialSkip,
    ResidualSkip,
    add_skips,
    make_block,
    max_pool,
    mean_over_graphs,
    mean_pool,
    only,
)
from geoskip.graphs import (
    Graph,
    Hierarchy,
    PooledGraphs,
    SparseMatrix,
    attach,
    cartesian,
    pack,
    pack_pooled,
    polar,
    separate,
    target_degree,
)
from geoskip.meshes import Mesh, decimate, grid, icosphere, mesh_hierarchy, spirals
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.operators import (
    ChebConv,
    FeaStConv,
    GCNConv,
    GINConv,
    MoNetConv,
    RBFConv,
    SpiralConv,
    SplineConv,
    make_operator,
)
from tests.models.small import autoencoder, hierarchy, pooled_graph
from tests.specimens import specimen

pytestmark = pytest.mark.usefixtures("unchecked")

VERTICES, IN, OUT = 7, 3, 2
SPECIMEN = specimen(VERTICES, dim=2, length=8)
GRAPH = SPECIMEN.graph(torch.float32)
EDGES = SPECIMEN.edge_index
PSEUDO = SPECIMEN.pseudo.float()
X = torch.linspace(-1, 1, VERTICES * IN).reshape(VERTICES, IN)
FACES = torch.tensor([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 5]])
POOLED = pooled_graph(8, seed=0)
MESH = grid(3, 3)
MATRIX = coo_array(np.eye(4, 6))
SPARSE = SparseMatrix.from_scipy(MATRIX)
COARSE = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 4)


class Call(NamedTuple):
    """``function(**good)`` works; ``kinds`` says which row of ``WRONG`` holds for an argument."""

    function: Callable[..., Any]
    good: dict[str, Any]
    kinds: dict[str, str]


class Wrong(NamedTuple):
    """``make(good)`` is wrong; ``blamed`` are other arguments that the error may name instead.

    Where ``accepted``, it is another way to write the good value and gives the same result.
    """

    label: str
    make: Callable[[Any], Any]
    blamed: tuple[str, ...] = ()
    accepted: bool = False


CALLS: dict[str, Call] = {}


def add(label: str, function: Callable[..., Any], good: dict[str, Any], /, **kinds: str) -> None:
    CALLS[label] = Call(function, good, kinds)


CHANNELS = {"in_channels": IN, "out_channels": OUT}
SIZES = {"in_channels": "size", "out_channels": "size", "kernel_size": "size"}
add("ChebConv", ChebConv, CHANNELS | {"kernel_size": 2}, **SIZES)
add("FeaStConv", FeaStConv, CHANNELS | {"kernel_size": 2, "init": "paper"}, init="name", **SIZES)
add("GCNConv", GCNConv, CHANNELS, in_channels="size", out_channels="size")
add(
    "GINConv",
    GINConv,
    CHANNELS | {"hidden_channels": 4, "epsilon": 0.5},
    hidden_channels="optional size",
    epsilon="number",
)
add("MoNetConv", MoNetConv, CHANNELS | {"kernel_size": 2, "dim": 2, "init": "paper"}, dim="size", init="name", **SIZES)
add("RBFConv", RBFConv, CHANNELS | {"kernel_size": 2, "dim": 2}, dim="size", **SIZES)
add("SpiralConv", SpiralConv, CHANNELS | {"kernel_size": 2, "dilation": 2}, dilation="size", **SIZES)
add("SplineConv", SplineConv, CHANNELS | {"kernel_size": 3, "dim": 2, "degree": 2}, dim="size", degree="size", **SIZES)
add(
    "SplineConv of several sizes", SplineConv, CHANNELS | {"kernel_size": (3, 4), "dim": 2}, kernel_size="counted sizes"
)
add(
    "make_operator",
    make_operator,
    {"name": "monet", "in_channels": IN, "out_channels": OUT, "kernel_size": 3, "dim": 2},
    name="name",
    in_channels="size",
    kernel_size="size",
    dim="optional size",
)

OPERATORS: dict[str, nn.Module] = {
    "ChebConv": ChebConv(IN, OUT, kernel_size=3),
    "FeaStConv": FeaStConv(IN, OUT, kernel_size=3),
    "GCNConv": GCNConv(IN, OUT),
    "GINConv": GINConv(IN, OUT),
    "MoNetConv": MoNetConv(IN, OUT, kernel_size=3, dim=2),
    "RBFConv": RBFConv(IN, OUT, kernel_size=3, dim=2),
    "SpiralConv": SpiralConv(IN, OUT, kernel_size=3),
    "SplineConv": SplineConv(IN, OUT, kernel_size=3, dim=2),
}
for name, conv in OPERATORS.items():
    add(f"{name}()", conv, {"x": X, "graph": GRAPH}, x="features", graph="graph")
    add(f"AffineSkip({name})()", AffineSkip(conv), {"x": X, "graph": GRAPH}, x="features", graph="graph")
for name in ("MoNetConv", "RBFConv", "SplineConv"):
    given = {"x": X, "graph": EDGES, "pseudo": PSEUDO}
    add(f"{name}(edge_index)()", OPERATORS[name], given, graph="edge_index", pseudo="pseudo of dim 2")
add("GCNConv(edge_index)()", OPERATORS["GCNConv"], {"x": X, "graph": EDGES}, x="features", graph="edge_index")

for skip in (AffineSkip, ResidualSkip, PolynomialSkip):
    kinds = {"conv": "module", "in_channels": "optional size", "out_channels": "optional size"}
    good: dict[str, Any] = {"conv": nn.Linear(IN, OUT), "in_channels": IN, "out_channels": OUT}
    if skip is PolynomialSkip:
        good, kinds = good | {"hidden_channels": 4}, kinds | {"hidden_channels": "optional size"}
    if skip is not ResidualSkip:
        good, kinds = good | {"init": "zeros"}, kinds | {"init": "name"}
    add(skip.__name__, skip, good, **kinds)
    # What is not wrong for the block but for the module inside, that module refuses in its own words.
    features_kind = "features of a residual skip" if skip is ResidualSkip else "features of a skip"
    for name, conv in {"Linear": nn.Linear(IN, OUT), "GCNConv": pyg_nn.GCNConv(IN, OUT)}.items():
        block: Any = skip(conv, IN, OUT)
        if name == "Linear":
            add(f"{skip.__name__}({name})()", lambda x, b=block: b(x), {"x": X}, x=features_kind)
        else:
            given = {"x": X, "edge_index": EDGES}
            add(f"{skip.__name__}({name})()", block, given, x=features_kind)
            add(f"{skip.__name__}({name}).affine", block.affine, {"x": X}, x=features_kind)
add("make_block", make_block, {"conv": nn.Linear(IN, OUT), "skip": "residual"}, skip="name")
add(
    "add_skips",
    lambda **given: add_skips(**{"model": nn.ModuleList([GCNConv(2, 2)])} | given),
    {"kind": "affine", "init": "zeros", "where": "0"},
    kind="name",
    init="name",
    where="pattern",
)
add("add_skips(model)", lambda model: add_skips(model), {"model": nn.ModuleList([GCNConv(2, 2)])}, model="module")


def enter(model: Any, part: Any) -> None:
    with only(model, part):
        pass


add("only", enter, {"model": AffineSkip(GCNConv(2, 2)), "part": "affine"}, model="module", part="name")

add(
    "CorrespondenceNet",
    CorrespondenceNet,
    {"num_classes": 5, "operator": "gcn", "in_channels": 3, "lift": 4, "head": 6, "channels": (4, 5), "graph": GRAPH},
    num_classes="size",
    operator="name",
    in_channels="size",
    lift="size",
    head="size",
    channels="sizes",
    graph="optional record",
)
add(
    "GraphClassifier",
    GraphClassifier,
    {"operator": "gcn", "num_classes": 5, "in_channels": 1, "head": 4, "channels": (2, 3), "pooling": "max"},
    operator="name",
    num_classes="size",
    in_channels="size",
    head="size",
    channels="sizes",
    pooling="name",
)
add(
    "MeshAutoencoder",
    MeshAutoencoder,
    {"hierarchy": hierarchy(), "operator": "gcn", "in_channels": 3, "channels": (4, 6), "latent": 5},
    hierarchy="record",
    operator="name",
    in_channels="size",
    channels="counted sizes",
    latent="size",
)
NET = CorrespondenceNet(5, operator="gcn", in_channels=IN, lift=4, channels=(4,), head=6).eval()
add("CorrespondenceNet()", NET, {"x": X, "graph": GRAPH}, x="features", graph="record")
CLASSIFIER = GraphClassifier(operator="gcn", in_channels=IN).eval()
add("GraphClassifier()", CLASSIFIER, {"x": torch.ones(8, IN), "graphs": POOLED}, x="features", graphs="record")
AUTOENCODER = autoencoder(operator="gcn")
add("MeshAutoencoder()", AUTOENCODER, {"x": torch.ones(42, 3)}, x="features")
add("MeshAutoencoder.decode", AUTOENCODER.decode, {"code": torch.ones(2, 5)}, code="code")

add(
    "Graph.from_edge_index",
    Graph.from_edge_index,
    {"edge_index": EDGES, "num_vertices": VERTICES, "pseudo": PSEUDO, "spirals": SPECIMEN.spirals},
    edge_index="edge_index",
    num_vertices="num_vertices",
    pseudo="optional pseudo",
    spirals="optional spirals",
)
add(
    "Graph.from_faces",
    Graph.from_faces,
    {"faces": FACES, "num_vertices": 6},
    faces="faces",
    num_vertices="num_vertices of faces",
)
add("Graph.from_pyg", Graph.from_pyg, {"data": Data(edge_index=EDGES, num_nodes=VERTICES)}, data="record")
add("with_pseudo", GRAPH.with_pseudo, {"pseudo": PSEUDO}, pseudo="pseudo")
add("with_spirals", GRAPH.with_spirals, {"spirals": SPECIMEN.spirals}, spirals="spirals")
add("attach", attach, {"graph": GRAPH, "pseudo": PSEUDO}, graph="record", pseudo="pseudo")
POSITIONS = {"graph": GRAPH, "positions": X[:, :2], "largest": 5.0}
for function in (cartesian, polar):
    add(function.__name__, function, POSITIONS, graph="record", positions="positions", largest="optional length")
add("target_degree", target_degree, {"graph": GRAPH, "largest": 9.0}, graph="record", largest="optional length")
add("pack", pack, {"graphs": [GRAPH, GRAPH]}, graphs="records")
add("separate", separate, {"graph": GRAPH}, graph="record")
add("pack_pooled", pack_pooled, {"items": [POOLED, POOLED]}, items="records")
LEVELS = {"levels": [Graph.from_edge_index(EDGES, 7), COARSE], "clusters": [torch.tensor([0, 1, 2, 3, 0, 1, 2])]}
add("PooledGraphs.from_clusters", PooledGraphs.from_clusters, LEVELS, levels="records", clusters="list of indices")
add(
    "SparseMatrix.from_entries",
    SparseMatrix.from_entries,
    {"rows": torch.tensor([0, 1]), "columns": torch.tensor([0, 2]), "values": torch.ones(2), "shape": (2, 3)},
    rows="indices",
    columns="indices",
    values="values",
    shape="counted sizes",
)
add("SparseMatrix.from_scipy", SparseMatrix.from_scipy, {"matrix": MATRIX}, matrix="record")
add("SparseMatrix @", lambda x: SPARSE @ x, {"x": torch.ones(6, IN)}, x="features of any width")
add(
    "Hierarchy.from_matrices",
    Hierarchy.from_matrices,
    {"levels": [Graph.from_edge_index(EDGES[:, :0], 6), COARSE], "down": [MATRIX], "up": [MATRIX.T]},
    levels="records",
    down="matrices",
    up="matrices",
)
MESHES = mesh_hierarchy(icosphere(1), targets=(20,))
HIERARCHY = {"meshes": MESHES, "spiral_length": 4}
add("Hierarchy.from_meshes", Hierarchy.from_meshes, HIERARCHY, meshes="record", spiral_length="optional size")
CLUSTERS = {"x": torch.ones(8, IN), "clusters": POOLED.clusters[0]}
for pooling in (max_pool, mean_pool):
    add(pooling.__name__, pooling, CLUSTERS, x="features of any width", clusters="record")
add("mean_over_graphs", mean_over_graphs, {"x": X, "graph": GRAPH}, x="features of any width", graph="record")
add("Mesh", Mesh, {"verts": MESH.verts, "faces": MESH.faces}, verts="verts", faces="mesh faces")
add("mesh_hierarchy", mesh_hierarchy, {"mesh": icosphere(1), "factors": (2, 2)}, mesh="record", factors="factors")
TARGETS = {"mesh": icosphere(1), "targets": (20, 8)}
add("mesh_hierarchy(targets)", mesh_hierarchy, TARGETS, mesh="record", targets="targets")
add("decimate", decimate, {"mesh": MESH, "target": 5}, mesh="record", target="size")
add("spirals", spirals, {"mesh": MESH, "length": 4, "dilation": 1}, mesh="record", length="size", dilation="size")


def constant(value: Any, label: str | None = None, *blamed: str) -> Wrong:
    return Wrong(repr(value) if label is None else label, lambda good: value, blamed)


def constants(*values: Any) -> list[Wrong]:
    return [constant(value) for value in values]


def same(label: str, make: Callable[[Any], Any]) -> Wrong:
    return Wrong(label, make, accepted=True)


def without(wrongs: list[Wrong], *labels: str) -> list[Wrong]:
    return [wrong for wrong in wrongs if wrong.label not in labels]


SIZE = [
    *constants(2.5, float("nan"), float("inf"), "3", [3], True, np.True_, 2 + 0j, -1),
    constant(-(2**63), "far below"),
    constant(torch.tensor([3, 4]), "two numbers"),
    constant(torch.tensor(True), "bool tensor"),
    constant(torch.tensor(2.5), "float tensor"),
    Wrong("float", float),
    Wrong("float64", np.float64),
    same("int64", np.int64),
    same("int8", np.int8),
    same("tensor", torch.tensor),
    same("array", np.array),
]
META = Wrong("meta", lambda t: t.to("meta"), ("graph", "columns", "pseudo"))
NO_TENSORS = [
    *constants(None, "x", 1.5, {}),
    Wrong("list", lambda t: t.tolist()),
    Wrong("tuple of three", lambda t: (t, t, t)),
]
OBJECTS = Wrong("objects", lambda t: np.array([[None]]))
FEATURES = [
    *NO_TENSORS,
    OBJECTS,
    Wrong("numpy", lambda t: t.numpy()),
    Wrong("numpy float64", lambda t: t.double().numpy()),
    Wrong("int", lambda t: t.long()),
    Wrong("bool", lambda t: t.bool()),
    Wrong("complex", lambda t: t.to(torch.complex64)),
    Wrong("sparse", lambda t: t.to_sparse()),
    Wrong("row", lambda t: t[0]),
    Wrong("scalar", lambda t: t[0, 0]),
    META,
    constant(EDGES, "an edge_index"),
    constant(GRAPH, "a graph"),
    constant(GRAPH.pattern, "a pattern"),
]
CHANNELS_OF_MODULE = [
    Wrong("channels", lambda t: torch.cat([t, t], dim=-1)),
    Wrong("no channels", lambda t: t[..., :0]),
]
OF_MODULE = [
    *CHANNELS_OF_MODULE,
    Wrong("float64", lambda t: t.double()),
    Wrong("half", lambda t: t.half()),
    Wrong("bfloat16", lambda t: t.bfloat16()),
]
UNSIGNED = same("numpy uint16", lambda t: t.numpy().astype(np.uint16))
INDICES = [
    *NO_TENSORS,
    OBJECTS,
    same("int32", lambda t: t.int()),
    same("numpy", lambda t: t.numpy()),
    same("numpy int32", lambda t: t.numpy().astype(np.int32)),
    same("numpy read-only", lambda t: np.broadcast_to(t.numpy(), t.shape)),
    same("numpy reversed", lambda t: np.flip(np.flip(t.numpy(), 0).copy(), 0)),
    same("numpy big-endian", lambda t: t.numpy().astype(">i8")),
    Wrong("numpy float", lambda t: t.numpy().astype(float)),
    Wrong("float", lambda t: t.float()),
    Wrong("bool", lambda t: t.bool()),
    Wrong("complex", lambda t: t.to(torch.complex64)),
    Wrong("negative", lambda t: t - 3),
    Wrong("out of range", lambda t: t + 100),
    Wrong("scalar", lambda t: t.flatten()[0], ("values",)),
    META,
]
EDGE_INDEX = [
    *INDICES,
    UNSIGNED,
    Wrong("transposed", lambda t: t.t()),
    Wrong("flat", lambda t: t.flatten()),
    Wrong("three rows", lambda t: torch.cat([t, t[:1]])),
    Wrong("sparse", lambda t: torch.eye(VERTICES).to_sparse()),
    constant(X, "features"),
]
VALUES = [
    *NO_TENSORS,
    OBJECTS,
    Wrong("int", lambda t: t.long()),
    Wrong("bool", lambda t: t.bool()),
    Wrong("complex", lambda t: t.to(torch.complex64)),
    Wrong("scalar", lambda t: t.flatten()[0]),
    Wrong("too few", lambda t: t[:-1]),
    META,
    same("numpy", lambda t: t.numpy()),
    same("numpy read-only", lambda t: np.broadcast_to(t.numpy(), t.shape)),
]
NOT_FINITE = [Wrong("nan", lambda t: t * np.nan), Wrong("inf", lambda t: t + np.inf)]
COLUMNS = [Wrong("flat", lambda t: t[:, 0]), Wrong("no columns", lambda t: t[:, :0])]
OPTIONAL_PSEUDO = [*without(VALUES, "None"), *NOT_FINITE, *COLUMNS, Wrong("numpy int", lambda t: t.long().numpy())]
NO_RECORDS = [
    *constants(None, "graph", 3, {}, []),
    constant(X, "features"),
    constant(X.numpy(), "array"),
]
RECORD = [*NO_RECORDS, constant(nn.Linear(2, 2), "module"), Wrong("class", type)]
LIST = [
    *constants(None, 3, []),
    constant(X, "features"),
    Wrong("a wrong item", lambda items: [*items[:-1], "graph"]),
    Wrong("no item", lambda items: [*items[:-1], None]),
]
ARRAY = [
    *constants(None, "x", 1.5, {}),
    OBJECTS,
    Wrong("meta", lambda a: torch.as_tensor(a.copy()).to("meta")),
    Wrong("text", lambda a: a.astype(str)),
    Wrong("complex", lambda a: a.astype(complex)),
    Wrong("nested", lambda a: a[None, None]),
    same("tensor", torch.tensor),
    same("list", lambda a: a.tolist()),
]
INDEX_ARRAY = [*ARRAY, Wrong("bool", lambda a: a.astype(bool)), Wrong("float", lambda a: a.astype(float))]
NAMES = constants("nonsense", "", 3, 2.5, {})
SOME_SIZES = [
    *constants(None, "34", ()),
    Wrong("zero", lambda good: (*good[:-1], 0), ("columns",)),
    Wrong("negative", lambda good: (*good[:-1], -2)),
    Wrong("float", lambda good: (*good[:-1], float(good[-1]))),
    Wrong("bool", lambda good: (*good[:-1], True)),
    Wrong("none inside", lambda good: (*good[:-1], None)),
    same("list", list),
    same("numpy", lambda good: tuple(np.int64(n) for n in good)),
]
SPIRALS = [*INDICES, Wrong("too few", lambda t: t[:-1]), Wrong("flat", lambda t: t[:, 0])]

WRONG: dict[str, list[Wrong]] = {
    "size": [*SIZE, constant(0), constant(None)],
    "optional size": [*SIZE, constant(0)],
    "num_vertices": [*SIZE, constant(None), constant(0, "0", "edge_index"), constant(3, "3", "edge_index")],
    "num_vertices of faces": [*SIZE, constant(None), constant(0, "0", "faces"), constant(3, "3", "faces")],
    "sizes": [*SOME_SIZES, same("array", np.array)],
    "factors": without(SOME_SIZES, "()"),
    "targets": without(SOME_SIZES, "None", "()"),
    "counted sizes": [*SOME_SIZES, Wrong("one more", lambda good: (*good, good[-1]))],
    "number": constants("3", None, [3], float("nan"), float("inf"), 2 + 0j, True),
    "optional length": constants(0, -1.0, "3", [3], float("nan"), float("inf"), True, 2 + 0j),
    "features": [*FEATURES, *OF_MODULE, Wrong("vertices", lambda t: t[:3], ("graph", "edge_index"))],
    "features of a skip": [*without(FEATURES, "row", "sparse"), *OF_MODULE],
    "features of a residual skip": [*without(FEATURES, "row", "sparse", "meta"), *CHANNELS_OF_MODULE],
    "features of any width": [*FEATURES, Wrong("vertices", lambda t: t[:-1])],
    "code": [*without(FEATURES, "row", "an edge_index", "a graph"), *OF_MODULE],
    "graph": [*RECORD, constant(POOLED, "pooled"), constant(COARSE, "another graph", "x"), META],
    "edge_index": EDGE_INDEX,
    "indices": [*INDICES, UNSIGNED, Wrong("too few", lambda t: t[:-1], ("values",))],
    "list of indices": [*LIST, Wrong("floats", lambda items: [t.float() for t in items])],
    "optional spirals": without(SPIRALS, "None"),
    "spirals": SPIRALS,
    "faces": [*INDICES, UNSIGNED, Wrong("pairs", lambda t: t[:, :2]), Wrong("flat", lambda t: t.flatten())],
    "values": VALUES,
    "pseudo": [*OPTIONAL_PSEUDO, constant(None)],
    "optional pseudo": OPTIONAL_PSEUDO,
    "pseudo of dim 2": [
        *OPTIONAL_PSEUDO,
        constant(None, None, "graph"),
        Wrong("dim 3", lambda t: torch.cat([t, t[:, :1]], dim=1)),
    ],
    "positions": [*without(VALUES, "int", "bool"), *NOT_FINITE, *COLUMNS],
    "record": RECORD,
    "optional record": without(RECORD, "None"),
    "records": LIST,
    "matrices": [*LIST, Wrong("transposed", lambda matrices: [m.T for m in matrices])],
    "module": [*NO_RECORDS, Wrong("class", type)],
    "name": [*NAMES, constant([])],
    "pattern": [*NAMES, constant([2])],
    "verts": [
        *ARRAY,
        *NOT_FINITE,
        *COLUMNS,
        Wrong("plane", lambda a: a[:, :2]),
        Wrong("bool", lambda a: a.astype(bool)),
        Wrong("too few", lambda a: a[:-1], ("faces",)),
    ],
    "mesh faces": [
        *INDEX_ARRAY,
        *COLUMNS,
        Wrong("negative", lambda a: a - 1),
        Wrong("out of range", lambda a: a + 1),
        Wrong("repeated", lambda a: a * 0),
    ],
}


def cases() -> Iterator[Any]:
    for name, call in CALLS.items():
        for argument, kind in call.kinds.items():
            for wrong in WRONG[kind]:
                yield pytest.param(call, argument, wrong, id=f"{name}-{argument}-{wrong.label}")


def run(call: Call, **changed: Any) -> Any:
    torch.manual_seed(0)
    return call.function(**call.good | changed)


def leaves(result: Any) -> list[Any]:
    """Numbers and tensors in a result; of a module its parameters."""
    if isinstance(result, nn.Module):
        return [tensor.detach() for tensor in result.state_dict().values()]
    if isinstance(result, (Mesh,)) or hasattr(result, "__dataclass_fields__"):
        result = {key: value for key, value in vars(result).items() if not key.startswith("_")}
    if isinstance(result, dict):
        return [leaf for value in result.values() for leaf in leaves(value)]
    if isinstance(result, (list, tuple)):
        return [leaf for value in result for leaf in leaves(value)]
    return [result.detach() if isinstance(result, Tensor) else result]


def equal(one: Any, other: Any) -> bool:
    if hasattr(one, "toarray"):
        one, other = one.toarray(), other.toarray()
    if isinstance(one, (Tensor, np.ndarray)):
        return one.dtype == other.dtype and np.array_equal(np.asarray(one), np.asarray(other))
    return type(one) is type(other) and (one == other or one is other)


# An edge_index given as the graph is called by its own name, and the name of an operator is a model's operator.
ALSO = {"graph": ("edge_index",), "name": ("operator",)}

# What an error may advise to do with the argument, and how that is done.
ADVICE: dict[str, Callable[[Any], Any]] = {
    r"\.long\(\)": lambda value: torch.as_tensor(value).long(),
    r"\.float\(\)": lambda value: torch.as_tensor(value).float(),
    r"\.to\((torch\.\w+|dtype)\)": lambda value: value.to(torch.float32),
    r"torch\.as_tensor\(\w+, dtype=(torch\.\w+)\)": lambda value: torch.as_tensor(value, dtype=torch.float32),
    r"torch\.as_tensor\(\w+\)": torch.as_tensor,
    r"\[edges, 1\]": lambda value: value.unsqueeze(-1),
}


def refusal(call: Call, **changed: Any) -> str | None:
    try:
        run(call, **changed)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def test_good_calls_work() -> None:
    for name, call in CALLS.items():
        assert set(call.kinds) <= set(call.good), name
        assert leaves(run(call)) is not None, name


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("call", "argument", "wrong"), list(cases()))
def test_right_or_refused(call: Call, argument: str, wrong: Wrong) -> None:
    value = wrong.make(call.good[argument])
    if wrong.accepted:
        pairs = zip(leaves(run(call)), leaves(run(call, **{argument: value})), strict=True)
        assert all(equal(one, other) for one, other in pairs)
        return
    message = refusal(call, **{argument: value})
    assert message is not None, "neither right nor refused"
    names = "|".join(map(re.escape, (argument, *wrong.blamed, *ALSO.get(argument, ()))))
    assert re.match(rf"({names})\b", message), message
    assert "\n" not in message
    assert len(re.findall(r"[a-z\])]\. [A-Z]", message)) <= 1, f"more than two sentences: {message}"
    for advice, follow in ADVICE.items():
        if re.search(advice, message) and not isinstance(value, list):
            assert refusal(call, **{argument: follow(value)}) != message, f"does not help: {message}"


CALLED_IN_ORDER: dict[str, Callable[..., Any]] = {
    **OPERATORS,
    **{f"AffineSkip({name})": AffineSkip(conv) for name, conv in OPERATORS.items()},
    **{f"{skip.__name__}(pyg)": skip(pyg_nn.GCNConv(IN, OUT)) for skip in (AffineSkip, ResidualSkip, PolynomialSkip)},
    "CorrespondenceNet": NET,
}


@pytest.mark.parametrize("name", sorted(CALLED_IN_ORDER))
def test_swapped_arguments(name: str) -> None:
    """``conv(edge_index, x)`` is told as what it is."""
    with pytest.raises(TypeError, match=r"^x: .*the features come first"):
        CALLED_IN_ORDER[name](EDGES, X)
    if "pyg" not in name:
        with pytest.raises(TypeError, match=r"^x: .*got a Graph; the features come first"):
            CALLED_IN_ORDER[name](GRAPH, X)


@pytest.mark.parametrize("skip", [AffineSkip, ResidualSkip, PolynomialSkip])
def test_numbers_of_vertices_are_no_features(skip: Any) -> None:
    """RGCNConv looks up whole numbers in a table: converted to floats it would take them for features."""
    conv = pyg_nn.RGCNConv(VERTICES, OUT, 2)
    types = torch.arange(EDGES.shape[1]) % 2
    assert conv(torch.arange(VERTICES), EDGES, types).shape == (VERTICES, OUT)
    with pytest.raises(TypeError, match=r"^x: \w+\(RGCNConv\) .*got torch.int64") as caught:
        skip(conv)(torch.arange(VERTICES), EDGES, types)
    assert ".float()" not in str(caught.value)
    assert "without a skip" in str(caught.value)


def test_pseudo_without_coordinates_gives_no_advice_that_fails() -> None:
    with pytest.raises(ValueError, match=r"^pseudo: .* got \[\d+, 0\], which has no coordinates$"):
        MoNetConv(IN, OUT, kernel_size=3, dim=2)(X, EDGES, pseudo=PSEUDO[:, :0])
