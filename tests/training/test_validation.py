"""A validation split: set aside once, by subject, evaluated during training; the test is looked at once, at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.data import Split
from geoskip.training.config import Config, resolve
from geoskip.training.evaluation import evaluate_run
from geoskip.training.loop import train
from geoskip.training.run import Run, check_settings
from geoskip.training.tasks import Task, make_task
from tests.training import sets

TASKS = ["reconstruction", "correspondence", "classification"]
METRIC = {"reconstruction": "mean_mm", "correspondence": "accuracy_pct", "classification": "accuracy_pct"}


@settings(deadline=None)
@given(st.integers(2, 60), st.floats(0.01, 0.99), st.data())
def test_no_item_and_no_subject_is_in_two_parts(count: int, share: float, data: st.DataObject) -> None:
    split = Split.by_mask(torch.arange(count + 5) >= count)
    subjects = data.draw(st.lists(st.sampled_from("abcdefg"), min_size=count + 5, max_size=count + 5))
    for names in (None, subjects):
        if names is not None and len(set(names[:count])) < 2:
            continue
        made = split.with_validation(share, names)
        made.check(count + 5)
        assert torch.equal(made.test, split.test)
        assert sorted([*made.train.tolist(), *made.validation.tolist()]) == split.train.tolist()
        assert len(made.train)
        assert len(made.validation)
        assert torch.equal(made.validation, split.with_validation(share, names).validation)
        if names is None:
            assert len(made.validation) == min(max(1, round(share * count)), count - 1)
        else:
            assert not {names[i] for i in made.train.tolist()} & {names[i] for i in made.validation.tolist()}


def test_a_share_of_everything_or_of_one_subject_is_refused() -> None:
    split = Split.leading(10, 8)
    with pytest.raises(ValueError, match=r"above 0 and below 1, got 1\.0"):
        split.with_validation(1.0)
    with pytest.raises(ValueError, match="at least 2 training subjects"):
        split.with_validation(0.1, ["a"] * 10)
    with pytest.raises(ValueError, match="twice"):
        Split(torch.arange(3), torch.arange(3, 5), torch.tensor([4])).check(5)


def spied(monkeypatch: pytest.MonkeyPatch, task: Task) -> list[str]:
    """The parts that a task is evaluated on, in turn. The copy of the task that trains is of the same class."""
    parts: list[str] = []
    evaluate = type(task).evaluate

    def noted(self: Task, model: Any, part: str = "test") -> Any:
        parts.append(part)
        return evaluate(self, model, part)

    monkeypatch.setattr(type(task), "evaluate", noted)
    return parts


@pytest.mark.parametrize("name", TASKS)
def test_the_test_is_looked_at_once_at_the_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = sets.config(name, validation=0.25, evaluate_every=1)
    task = make_task(config, sets.data(name))
    whole = make_task(replace(config, validation=0.0), sets.data(name))
    assert task.num_items + len(task.split_items("validation")) == whole.num_items
    assert len(task.names) == task.num_items
    parts = spied(monkeypatch, task)
    record = train(config, tmp_path, task=task).record
    assert parts == ["validation", "validation", "validation", "test"]
    metric = METRIC[name]
    assert {metric, f"validation_{metric}"} <= record.metrics.keys()
    assert len(record.curves[f"validation_{metric}"]) == 2
    assert metric not in record.curves


@pytest.mark.parametrize("name", TASKS)
def test_choices_are_made_without_the_test(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = sets.config(name, validation=0.25, test=False)
    task = make_task(config, sets.data(name))
    parts = spied(monkeypatch, task)
    record = train(config, tmp_path, task=task).record
    assert all(metric.startswith("validation_") for metric in record.metrics)
    found = evaluate_run(Run.open(tmp_path), data=sets.data(name))
    assert set(parts) == {"validation"}
    assert found.evaluation.metrics[METRIC[name]] == pytest.approx(record.metrics[f"validation_{METRIC[name]}"])


@pytest.mark.parametrize("top", ["", "scans/all/"])
def test_subjects_stay_together_where_names_have_them(top: str) -> None:
    data = sets.meshes()
    names = tuple(f"{top}{item % 5:03d}/smile/{item:03d}" for item in range(len(data)))
    task = make_task(sets.config(validation=0.2), replace(data, names=names))
    split = task.data.split
    subjects = [
        {names[item].removeprefix(top).split("/")[0] for item in part.tolist()}
        for part in (split.train, split.validation)
    ]
    assert not subjects[0] & subjects[1]


def test_classes_are_no_subjects() -> None:
    """Images are in one folder per class. Their names change nothing about the items that are set aside."""
    data = sets.graphs()
    names = tuple(f"train/{data.class_names[label]}/{item}.png" for item, label in enumerate(data.labels.tolist()))
    sets_of_graphs = (replace(data, names=names), data)
    named, nameless = (make_task(sets.config("classification", validation=0.4), graphs) for graphs in sets_of_graphs)
    assert torch.equal(named.split_items("validation"), nameless.split_items("validation"))
    assert named.names[0] == "train/low/0.png"


def test_validation_items_are_the_same_for_every_seed_and_method() -> None:
    chosen = [
        make_task(sets.config("classification", validation=0.2, **given), sets.graphs())
        .split_items("validation")
        .tolist()
        for given in ({}, {"seed": 3}, {"operator": "gcn"})
    ]
    assert chosen[0] == chosen[1] == chosen[2]


def test_settings_that_leave_nothing_to_evaluate_are_refused() -> None:
    with pytest.raises(ValueError, match="test: false leaves nothing to evaluate; also set validation"):
        resolve("classification", test=False)
    with pytest.raises(ValueError, match=r"validation: .* below 1, got 1\.5"):
        resolve("classification", validation=1.5)


def test_a_run_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Its configuration does not have the settings that are new."""
    config = sets.config()
    run = train(config, tmp_path, task=make_task(config, sets.meshes()), stop_after=1)
    from geoskip.training.checkpoint import load_checkpoint

    assert run.checkpoint is not None
    state = load_checkpoint(run.checkpoint)
    for name in ("validation", "test", "coarsening", "pseudo_scale"):
        del state.progress["config"][name]
    check_settings(config, state.progress["config"], tmp_path)
    assert Config.from_json(state.progress["config"]) == config
