"""Operators and skips are found by name, by entry point and by ``module:Name``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from geoskip.blocks import SKIPS, Skip, add_skips, find_skip, make_block, skip_names, skip_prefix
from geoskip.graphs import Graph
from geoskip.models import CorrespondenceNet, GraphClassifier
from geoskip.operators import OPERATORS, Operator, make_operator, operator_info
from geoskip.registry import Registry, unknown_name
from geoskip.training.config import resolve
from geoskip.training.loop import train
from geoskip.training.run import Run, row_name
from geoskip.training.tasks import make_task
from tests.packages import importable, install
from tests.training import sets

OWN = '''
import torch
from torch import nn

from geoskip.blocks import Skip
from geoskip.operators import Operator


class MeanConv(nn.Module):
    """A plain module, called as conv(x, graph); it declares only a title."""

    title = "MeanNet"

    def __init__(self, in_channels, out_channels, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)
        self.scale = scale

    def forward(self, x, graph):
        senders, receivers = graph.edge_index
        return self.scale * self.linear(torch.zeros_like(x).index_add(-2, receivers, x[..., senders, :]))


class RadialConv(Operator):
    name = "radial"
    title = "RadialNet"
    uses_pseudo = True

    def __init__(self, in_channels, out_channels, *, kernel_size, dim=3):
        super().__init__(in_channels, out_channels, kernel_size)
        self.theta = nn.Parameter(torch.empty(kernel_size * dim, in_channels, out_channels))
        self.add_bias(True)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.theta)
        nn.init.zeros_(self.bias)

    def convolve(self, x, graph, skip):
        senders, receivers = graph.edge_index
        weight = graph.pseudo.sum(-1, keepdim=True)
        heard = torch.zeros_like(x).index_add(-2, receivers, weight * x[..., senders, :])
        return heard @ self.theta.sum(0) + self.bias + (0 if skip is None else x @ skip)


class HalfSkip(Skip):
    skip_name = "half"
    skip_title = "half skip"
    skip_prefix = "Half-"

    def __init__(self, conv, in_channels=None, out_channels=None):
        super().__init__(conv, in_channels, out_channels, bias=False)

    def shortcut(self, x):
        return 0.5 * x.mean(-1, keepdim=True).expand(*x.shape[:-1], self.skip_channels[1])


NOT_CALLABLE = 3


def not_a_module(in_channels, out_channels):
    return "text"
'''


MEAN = "othernet.conv:MeanConv"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package with an operator and a skip of its own, and entry points for them."""
    points = {
        "geoskip.operators": {"radial": "othernet.conv:RadialConv"},
        "geoskip.skips": {"half": "othernet.conv:HalfSkip"},
    }
    install(tmp_path, "othernet", points)
    with importable(tmp_path, "othernet.conv", OWN, monkeypatch):
        yield "othernet.conv"


def test_built_in_names() -> None:
    assert OPERATORS.names() == ("cheb", "feast", "gcn", "gin", "monet", "spiral", "spline")
    assert SKIPS.names() == ("affine", "polynomial", "residual")
    assert skip_names() == ("none", "affine", "polynomial", "residual")
    assert [skip_prefix(name) for name in skip_names()] == ["", "Aff-", "Poly-", "Res-"]


def test_facts() -> None:
    """Which operators need what: these facts decide how data are prepared."""

    def those(fact: str) -> set[str]:
        return {name for name in OPERATORS.names() if getattr(operator_info(name), fact)}

    assert those("uses_pseudo") == {"monet", "spline"}
    assert those("adds_self_loops") == {"feast", "gcn"}
    assert those("needs_spirals") == {"spiral"}
    assert those("needs_batch_norm") == {"gin"}
    assert those("uses_edge_weight") == {"cheb", "gcn", "gin"}
    assert those("without_center") == {"cheb", "feast", "spiral"}
    assert those("has_kernel_size") == set(OPERATORS.names()) - {"gcn", "gin"}
    assert [operator_info(name).title for name in OPERATORS.names()] == [
        *("ChebNet", "FeaStNet", "GCN", "GIN-0", "MoNet", "SpiralNet++", "SplineCNN")
    ]


def test_the_options_of_the_dagger_exist() -> None:
    for name in OPERATORS.names():
        info = operator_info(name)
        assert set(info.without_center) <= info.options


@pytest.mark.parametrize(("options", "length"), [({}, 5), ({"dilation": 3}, 13)])
def test_spiral_length(options: dict[str, int], length: int) -> None:
    info = operator_info("spiral")
    without = dict(info.without_center)
    assert info.spiral_length(5, options) == length
    assert info.spiral_length(5, {**options, **without}) == length + 1
    assert operator_info("monet").spiral_length(5, {}) is None


def test_an_operator_of_another_package(package: str) -> None:
    name = f"{package}:MeanConv"
    info = operator_info(name)
    assert (info.title, info.has_kernel_size, info.uses_pseudo, info.adds_self_loops) == ("MeanNet", *(False,) * 3)
    conv: Any = make_operator(name, 3, 5, dim=2, scale=2.0)
    assert (type(conv).__name__, conv.scale) == ("MeanConv", 2.0)
    with pytest.raises(ValueError, match=f"heads: {name} has no such option; it has scale"):
        make_operator(name, 3, 5, heads=2)
    with pytest.raises(ValueError, match=r"kernel_size: .*MeanConv has one weight matrix"):
        make_operator(name, 3, 5, kernel_size=4)


def test_names_from_entry_points(package: str) -> None:
    assert "radial" in OPERATORS.names()
    assert "half" in skip_names()
    conv = make_operator("radial", 3, 5, kernel_size=2)
    assert isinstance(conv, Operator)
    assert conv.title == "RadialNet"
    assert (find_skip("half").__name__, skip_prefix("half")) == ("HalfSkip", "Half-")
    assert find_skip(f"{package}:HalfSkip") is find_skip("half")


def test_models_take_both(package: str) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    net = CorrespondenceNet(4, operator=f"{package}:MeanConv", skip="half", channels=(5, 6))
    assert net(torch.rand(3, 3), graph).shape == (3, 4)
    assert all(isinstance(conv, Skip) for conv in net.convs)
    classifier = GraphClassifier(operator=f"{package}:MeanConv")
    assert all(isinstance(norm, nn.Identity) for norm in classifier.norms)


def test_add_skips_takes_a_skip_of_another_package(package: str) -> None:
    model = nn.Sequential(make_operator("gcn", 3, 4))
    assert len(add_skips(model, f"{package}:HalfSkip").wrapped) == 1
    with pytest.raises(ValueError, match=r"init: .* has no parameters that could start at zero"):
        add_skips(nn.Sequential(make_operator("gcn", 3, 4)), "half", init="zeros")


@pytest.mark.parametrize(
    ("task", "operator"),
    [("reconstruction", "radial"), ("correspondence", "othernet.conv:RadialConv"), ("classification", MEAN)],
)
def test_training_with_it_and_opening_the_run(package: str, tmp_path: Path, task: str, operator: str) -> None:
    config = sets.config(task, operator=operator, skip="half", optim={"epochs": 1})
    made = make_task(config, sets.data(task))
    train(config, tmp_path / "run", task=made)
    run = Run.open(tmp_path / "run")
    assert (run.config.operator, run.config.skip) == (operator, "half")
    title = operator_info(operator).title
    assert row_name(run.config) == f"Half-{title}" + (" M=2" if title == "RadialNet" else "")


def test_defaults_follow_the_facts(package: str) -> None:
    assert resolve("reconstruction", operator="radial").kernel_size == 9
    assert resolve("reconstruction", operator=f"{package}:MeanConv").kernel_size is None


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("monte", "operator: unknown name 'monte'; did you mean monet?"),
        ("gat", "operator: unknown name 'gat'; choose from cheb, feast, gcn"),
        (3, "operator: expected a name, got 3; choose from"),
        ("othernet.missing:Conv", r"operator: cannot import 'othernet.missing:Conv' \(No module named"),
        ("othernet.conv:Missing", r"operator: cannot import .* has no attribute 'Missing'"),
        (":Conv", "operator: cannot import ':Conv'"),
        ("othernet.conv:NOT_CALLABLE", "operator: 'othernet.conv:NOT_CALLABLE' is not a class of modules"),
    ],
)
def test_unknown_operators(package: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_operator(name, 3, 5)


def test_an_operator_must_be_a_module(package: str) -> None:
    with pytest.raises(TypeError, match=r"not_a_module must make a torch.nn.Module, got a str"):
        make_operator(f"{package}:not_a_module", 3, 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("afine", "skip: unknown name 'afine'; did you mean affine?"),
        ("x", "skip: unknown name 'x'; choose from none, affine"),
        ("othernet.conv:MeanConv", "skip: othernet.conv:MeanConv is not a subclass of geoskip.blocks.Skip"),
    ],
)
def test_unknown_skips(package: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_block(make_operator("gcn", 3, 3), name)


def test_a_name_is_registered_once() -> None:
    registry: Registry[type] = Registry("thing", {"json": "json:JSONDecoder"}, entry_points="geoskip.things")

    @registry.register
    class One:
        name = "one"

    assert registry.register(One) is One
    assert registry.get("one") is One
    assert registry.get("json").__name__ == "JSONDecoder"
    assert "two" not in registry
    with pytest.raises(ValueError, match="name: the thing 'one' exists already"):
        registry.register(type("Other", (), {"name": "one"}))
    for name in ("", "a:b", None):
        with pytest.raises(ValueError, match="must declare a name without a colon"):
            registry.register(type("Bad", (), {"name": name}))


def test_a_similar_name_is_suggested() -> None:
    assert unknown_name("lr", ["optim.lr", "seed"]) == "unknown name 'lr'; did you mean optim.lr? (optim.lr, seed)"
    assert unknown_name("lr", ["optim.lr", *"abcdef"]) == "unknown name 'lr'; did you mean optim.lr?"
    settings = ["optim.lr", "optim.lr_decay", "seed"]
    assert unknown_name("optim.learning_rate", settings).endswith("; choose from optim.lr, optim.lr_decay")
