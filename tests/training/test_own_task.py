"""A task of another package, by ``module:Name``: what is said if it does not fit.

tests/test_contributing.py trains one, and evaluates, applies, exports and reports it in other processes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from geoskip.training.config import resolve
from geoskip.training.tasks import Task, find_task

OWN = """
from geoskip.models import CorrespondenceNet
from geoskip.training import Task


class Octants(Task):
    model_class = CorrespondenceNet
    data_from = "reconstruction"
"""


def test_what_it_cannot_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "octants.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    assert issubclass(find_task("octants:Octants"), Task)
    for name, fault in (
        ("octants:CorrespondenceNet", "task: octants:CorrespondenceNet is not a subclass of geoskip.training.Task"),
        ("octants:Nothing", "task: cannot import 'octants:Nothing'"),
        ("reconstrution", "task: unknown name 'reconstrution'; did you mean reconstruction"),
    ):
        with pytest.raises(ValueError, match=fault):
            find_task(name)
    with pytest.raises(ValueError, match="data: octants:Octants has no default data set; choose one with --data"):
        resolve("octants:Octants", operator="gcn")
    config = resolve("octants:Octants", operator="gcn", data="meshes", coarsening={"matchings": 1})
    with pytest.raises(ValueError, match="coarsening: octants:Octants has no such setting"):
        find_task("octants:Octants").check_config(config)
