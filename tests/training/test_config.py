"""Configurations: the paper's values, settings by name, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from geoskip.training.config import Config, Optim, override, resolve
from geoskip.training.run import method_name, row_name
from geoskip.training.tasks import make_task
from tests.training import sets


@pytest.mark.parametrize(
    ("task", "operator", "optim", "kernel_size"),
    [
        ("reconstruction", "monet", Optim(1e-3, 0.99, 1, 0.0, 300, 32), 9),
        ("correspondence", "monet", Optim(1e-3, 0.99, 1, 0.0, 1000, 1), 10),
        ("correspondence", "feast", Optim(1e-2, 0.5, 100, 0.0, 1000, 1), 10),
        ("correspondence", "gcn", Optim(1e-3, 0.99, 1, 0.0, 1000, 1), None),
        ("classification", "monet", Optim(1e-3, 0.5, 30, 1e-4, 500, 64), 25),
    ],
)
def test_defaults_are_the_papers(task: str, operator: str, optim: Optim, kernel_size: int | None) -> None:
    config = resolve(task, operator=operator)
    assert (config.optim, config.kernel_size) == (optim, kernel_size)


def test_what_is_given_replaces_a_default_alone() -> None:
    config = resolve("classification", optim={"lr": 0.5}, kernel_size=None)
    assert (config.optim.lr, config.optim.batch_size, config.kernel_size) == (0.5, 64, 25)


def test_a_configuration_survives_json() -> None:
    config = resolve("reconstruction", options={"center": False}, operator="cheb", model={"channels": [8, 8]})
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("optim.lr=1e-4", ("optim", "lr"), 1e-4),
        ("model.channels=[4, 8]", ("model", "channels"), [4, 8]),
        ("options.self_loops=False", ("options", "self_loops"), False),
        ("data=some/folder", ("data",), "some/folder"),
        ("train_items=none", ("train_items",), None),
        ("seed=3", ("seed",), 3),
    ],
)
def test_settings_by_name(setting: str, path: tuple[str, ...], value: Any) -> None:
    entries: Any = override(resolve("reconstruction"), [setting]).to_json()
    for key in path:
        entries = entries[key]
    assert entries == value


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("optim.lrr=1", "optim.lrr: unknown name .* did you mean optim.lr?"),
        ("lr=1", "lr: unknown name 'lr'; did you mean optim.lr?"),
        ("opeator=gcn", "did you mean operator?"),
        ("xyzzy=1", "choose from task, data"),
        ("seed", "expected KEY=VALUE"),
        ("=3", "=3: expected KEY=VALUE"),
        ("seed.x=1", "seed has no parts"),
        ("optim=3", "optim: expected names with values"),
        ("optim.lr=fast", "optim.lr: expected a number, got 'fast'"),
        ("optim.lr=0", "optim.lr: expected a rate above 0"),
        ("optim.lr_decay=1.5", "optim.lr_decay: expected a factor"),
        ("optim.weight_decay=-1", "optim.weight_decay: expected 0 or more"),
        ("optim.batch_size=0", "optim.batch_size: expected 1 or more, got 0"),
        ("optim.batch_size=true", "optim.batch_size: expected a whole number, got True"),
        ("skip=afine", "skip: unknown name 'afine'; did you mean affine?"),
        ("precision=half", "precision: unknown name 'half'"),
        ("keep=0", "keep: expected 1 or more"),
        ("tf32=1", "tf32: expected true or false, got 1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_settings_that_are_refused(setting: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("?", r"\?")):
        override(resolve("reconstruction"), [setting])


@pytest.mark.usefixtures("unchecked")
def test_a_group_of_settings_leaves_the_others_of_the_group() -> None:
    config = override(resolve("reconstruction", model={"latent": 8}), ['optim={"lr": 0.1}', 'model={"channels": [4]}'])
    assert config.optim == replace(resolve("reconstruction").optim, lr=0.1)
    assert config.model == {"latent": 8, "channels": [4]}
    assert override(resolve("classification"), ['optim={"lr": 0.1}']).optim.epochs == 500


def test_unknown_tasks_and_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean reconstruction"):
        resolve("reconstrution")
    with pytest.raises(ValueError, match=r"optim\.rate: unknown name"):
        resolve("reconstruction", optim={"rate": 1})
    with pytest.raises(ValueError, match="data: a configuration needs one"):
        Config.from_json({"task": "reconstruction"})
    with pytest.raises(ValueError, match="opertor: unknown name 'opertor'; did you mean operator"):
        Config.from_json({"task": "reconstruction", "data": "faces", "opertor": "gcn"})


@pytest.mark.parametrize(
    ("task", "given", "complaint"),
    [
        ("reconstruction", {"operator": "mone"}, "operator: unknown name 'mone'; did you mean monet"),
        ("classification", {"operator": "spiral"}, "spiral needs meshes"),
        ("reconstruction", {"model": {"latnt": 3}}, "model.latnt: unknown name 'latnt'; did you mean latent"),
        ("reconstruction", {"model": {"latent": "x"}}, "model.latent: expected a whole number, got 'x'"),
        (
            "reconstruction",
            {"model": {"channels": 8}},
            "model.channels: expected a list of whole numbers, got 8",
        ),
        (
            "reconstruction",
            {"model": {"factors": [2, 2.5]}},
            r"model.factors: expected a list of whole numbers, got \[2, 2.5\]",
        ),
        ("reconstruction", {"model": {"hierarchy": 3}}, "model.hierarchy: follows from the data and cannot be set"),
        ("reconstruction", {"model": {"width": 3}}, r"'width'; choose from channels, latent, factors$"),
        ("classification", {"model": {"num_classes": 3}}, "model.num_classes: follows from the data"),
        ("reconstruction", {"train_items": 11}, "train_items: 11 are asked for, but the data have 10"),
        ("classification", {"test_items": 5}, "test_items: 5 are asked for, but the data have 4"),
        ("reconstruction", {"train_items": 1}, "data: .* two or more training meshes, got 1"),
        ("classification", {"model": {"normalize": 1}}, "model.normalize: expected true or false or none, got 1"),
        ("correspondence", {"model": {"dropout": True}}, "model.dropout: expected a number, got True"),
        ("reconstruction", {"operator": "gcn", "kernel_size": 3}, "gcn has one weight matrix and takes none"),
        ("reconstruction", {"options": {"center": True}}, "center: monet has no such option"),
        ("classification", {"model": {"channels": [2, 2, 2, 2]}}, "4 convolutions need as many levels"),
    ],
)
def test_what_does_not_fit_the_task_is_refused(task: str, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make_task(sets.config(task, **given), sets.data(task))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"data": "bodies"},
            "bodies is for correspondence; reconstruction trains on faces, mixed-faces, .*coma, or a path",
        ),
        ({"data": "facess"}, "did you mean faces"),
        ({"data": "."}, "data_options.unit_mm: required for"),
        ({"data": "faces", "data_options": {"frams": 3}}, "data_options.frams: faces has no such option"),
    ],
)
def test_data_that_cannot_be_had(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make_task(sets.config(**given))


def test_more_levels_than_the_meshes_have_vertices_for() -> None:
    """The paper's four levels are too many for small meshes."""
    task = make_task(sets.config(model={"channels": [4, 4, 4, 4]}), sets.meshes())
    with pytest.raises(ValueError, match=r"model\.factors: levels of .* needs 3; use fewer .* model\.channels"):
        task.make_model()


def test_a_set_without_training_items_is_refused() -> None:
    with pytest.raises(ValueError, match="tiny has no items for training"):
        make_task(sets.config(), sets.meshes(count=4, num_test=4))


def test_names_of_methods() -> None:
    assert method_name(resolve("reconstruction", skip="affine")) == "Aff-MoNet"
    assert row_name(resolve("reconstruction", skip="residual", operator="gcn")) == "Res-GCN"
    assert row_name(resolve("reconstruction", operator="cheb", options={"center": False})) == "ChebNet† M=9"
