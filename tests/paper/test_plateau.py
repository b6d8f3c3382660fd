"""The study of FeaStNet on superpixels, on tiny data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from docs.analyze_plateau import VARIANTS, main, plateau_curve, scale_weights

from geoskip.operators import FeaStConv
from geoskip.paper.experiments import TABLE2
from geoskip.paper.findings import read_analysis
from geoskip.paper.rows import TINY
from geoskip.paper.running import loaded
from geoskip.training.config import override
from geoskip.training.loop import train
from geoskip.training.tasks import make_task


def test_weights_are_scaled_but_not_the_bias() -> None:
    conv = FeaStConv(2, 3, kernel_size=4, init="authors")
    before = {name: parameter.detach().clone() for name, parameter in conv.named_parameters()}
    scale_weights(torch.nn.Sequential(conv), 3.0)
    for name, parameter in conv.named_parameters():
        torch.testing.assert_close(parameter.detach(), (1.0 if name == "bias" else 3.0) * before[name])


def test_measuring_leaves_training_as_it_is(tmp_path: Path) -> None:
    """Loss by loss, from the first epoch on: the network has its dropout."""
    (row,) = TABLE2.select(["Aff-FeaStNet"])
    config = override(row.config(TINY, "first3", 0, "cpu"), ["validation=0.5", "test=false"])
    points = list(plateau_curve("affine", config))
    run = train(config, tmp_path, task=make_task(config, data=loaded(config)))
    assert [point.loss for point in points[1:]] == [loss for _, loss in run.record.curves["loss"]]


def test_curve_from_the_start_to_the_last_epoch() -> None:
    (row,) = TABLE2.select(["Aff-FeaStNet"])
    config = override(row.config(TINY, "first3", 0, "cpu"), ["validation=0.5", "test=false"])
    points = list(plateau_curve("affine", config))
    assert [point.epoch for point in points] == [0, 1, 2, 3]
    assert points[0].loss is None
    losses = [point.loss for point in points[1:]]
    assert all(loss is not None and 0 < loss < 4 for loss in losses)
    assert points[0].weights == pytest.approx(0.1, rel=0.1), "N(0, 0.1)"
    assert points[-1].weights != points[0].weights
    assert all(point.spread > 0 for point in points)


def test_record(tmp_path: Path) -> None:
    main(["--data", TINY, "--epochs", "1", "--device", "cpu", "-o", str(tmp_path / "plateau.json")])
    record = read_analysis(tmp_path / "plateau.json")
    assert record.analysis == "plateau"
    assert [row["variant"] for row in record.rows] == [name for name in VARIANTS for _ in range(2)]
    (row,) = TABLE2.select(["FeaStNet"])
    assert record.data_key == loaded(row.config(TINY, "first1", 0, "cpu")).content
