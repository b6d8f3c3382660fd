"""The page of runs that were trained: from the loop to the samples that it opens with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import cast

import pytest

from geoskip.records import MeshSamples
from geoskip.report.page import page_html
from geoskip.report.picture_grids import errors_mm
from geoskip.report.runs import ReportRun, find_runs
from geoskip.training.loop import train
from geoskip.training.tasks import make_task
from tests.training.sets import config, meshes

EXPRESSIONS = ("bareteeth", "eyebrow", "high_smile")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportRun, ...]:
    """A plain, a residual and an affine network on four people with three expressions each, two frames of each."""
    folder = tmp_path_factory.mktemp("runs")
    names = [f"{person:03d}/{word}/{frame:05d}" for person in range(4) for word in EXPRESSIONS for frame in (0, 1)]
    data = meshes(count=40, num_test=24)
    data = replace(data, names=(*data.names[:16], *names))
    for skip in ("none", "residual", "affine"):
        chosen = config(skip=skip, optim={"epochs": 10})
        train(chosen, folder / skip, task=make_task(chosen, data=data))
    return find_runs([folder]).runs


def test_the_page_opens_with_the_sample_nearest_to_the_test_set(runs: tuple[ReportRun, ...]) -> None:
    by_skip = {str(run.record.config["skip"]): run for run in runs}
    plain, affine = (by_skip[skip] for skip in ("none", "affine"))
    kept = cast(MeshSamples, plain.samples)
    assert len({name.split("/")[0] for name in kept.names}) > 1
    assert len({name.split("/")[1] for name in kept.names}) > 1
    goal = affine.record.metrics["mean_mm"] / plain.record.metrics["mean_mm"]
    errors = [errors_mm(cast(MeshSamples, run.samples)).mean(axis=1) for run in (plain, affine)]
    nearest = kept.names[int(abs(errors[1] / errors[0] - goal).argmin())]
    data = json.loads(page_html(runs).split('id="data">')[1].split("</script>")[0])
    (scene,) = data["scenes"]
    person, word, _ = nearest.split("/")
    assert scene["samples"][0] == f"Person {int(person)}, {word.replace('bareteeth', 'bared teeth').replace('_', ' ')}"
    assert len(set(scene["samples"])) == len(scene["samples"]) > 1
    assert [method["name"] for method in scene["methods"]] == ["MoNet", "Res-MoNet", "Aff-MoNet"]
    for method, skip in zip(scene["methods"], ("none", "residual", "affine"), strict=True):
        assert method["test"] == f"test set: mean {by_skip[skip].record.metrics['mean_mm']:.3f} mm"
