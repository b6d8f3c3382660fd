"""Statistics of batch normalization that are computed again after the last step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from geoskip.models import GraphClassifier
from geoskip.training.loop import train
from geoskip.training.tasks import make_task
from tests.training import sets


@pytest.mark.parametrize("coarsening", [{}, {"matchings": 1, "drawn": "epoch", "weight": "far"}], ids=str)
def test_statistics_are_the_means_over_the_training_batches(tmp_path: Path, coarsening: dict[str, object]) -> None:
    weights = {}
    for recalibrate in (False, True):
        config = sets.config("classification", operator="gin", recalibrate=recalibrate, coarsening=coarsening)
        task = make_task(config, sets.graphs())
        weights[recalibrate] = train(config, tmp_path / str(recalibrate), task=task).weights[0]
    changed = {name for name in weights[True] if not torch.equal(weights[True][name], weights[False][name])}
    assert changed == {f"norms.{k}.{name}" for k in range(3) for name in ("running_mean", "running_var")} | {
        f"norms.{k}.num_batches_tracked" for k in range(3)
    }

    model = task.make_model()
    assert isinstance(model, GraphClassifier)
    model.load_state_dict(weights[False])
    task.begin_epoch(config.optim.epochs)
    seen: list[Tensor] = []
    model.norms[1].register_forward_pre_hook(lambda norm, given: seen.append(given[0]))
    size = config.optim.batch_size
    for start in range(0, task.num_items - size + 1, size):
        packed, _ = task.batch(torch.arange(start, start + size))
        model.train()(packed.x, packed.graphs)
    assert len(seen) > 1
    assert_close(weights[True]["norms.1.running_mean"], torch.stack([x.mean(0) for x in seen]).mean(0))
    assert_close(weights[True]["norms.1.running_var"], torch.stack([x.var(0) for x in seen]).mean(0))


def test_only_classification_has_the_setting() -> None:
    with pytest.raises(ValueError, match="recalibrate: correspondence has no such setting"):
        make_task(sets.config("correspondence", recalibrate=True), sets.correspondences())
