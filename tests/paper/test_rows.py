"""The rows of the paper's tables, and the models behind them."""

from __future__ import annotations

import pytest
import torch

from geoskip.blocks import skip_prefix
from geoskip.operators import operator_info
from geoskip.paper.experiments import CORRESPONDENCE, TABLE1, TABLE2
from geoskip.paper.rows import paper, paper_model


def test_rows_are_read_from_their_printed_names() -> None:
    """In the order of the tables, M by M. What a name says can be told from the row."""
    for experiment, count in ((TABLE1, 3 * 14), (TABLE2, 13), (CORRESPONDENCE, 9)):
        printed = [title for methods in paper()[experiment.name].values() for title in methods]
        assert [row.title for row in experiment.rows] == printed
        assert len(printed) == count
        for row in experiment.rows:
            name = operator_info(row.operator).title + "+" * row.more + "†" * bool(row.options)
            assert row.method == skip_prefix(row.skip) + name


def test_counts_round_to_what_the_paper_prints() -> None:
    """Table 1 is rounded to 0.1k, Table 2 cut down to the k or 0.1k."""
    for row in TABLE1.rows:
        assert round(row.figures["params"] / 1000, 1) == pytest.approx(row.figures["params_k"], abs=0.051)
    for row in TABLE2.rows:
        assert 0 <= row.figures["params"] / 1000 - row.figures["params_k"] < 1


def test_only_the_difference_shows() -> None:
    found = {row.method: row for row in TABLE1.rows if row.column == 9}
    assert found["MoNet"].kernel_size == 9
    assert found["MoNet+"].kernel_size == 10
    assert (found["Aff-FeaStNet"].operator, found["Aff-FeaStNet"].skip) == ("feast", "affine")
    assert found["SpiralNet++†"].options == {"center": False}
    daggered = {row.method: row for row in CORRESPONDENCE.rows}["Aff-FeaStNet†"]
    assert (daggered.skip, daggered.options) == ("affine", {"self_loops": False})
    assert [row.kernel_size for row in TABLE2.rows][:5] == [None, None, None, None, 25]


def test_counting_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    paper_model(TABLE2.rows[1])
    assert torch.equal(torch.rand(2), wanted)
