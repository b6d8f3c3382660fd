"""The shared suite runs over every operator and option."""

from __future__ import annotations

import pytest

from tests.operators.cases import CASES, Case


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param
