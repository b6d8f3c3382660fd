"""Where the data of others is looked for."""

from pathlib import Path

import pytest

from geoskip.data.sources import COMA, MissingData, data_root


def test_where_the_data_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "chosen"))
    assert data_root() == tmp_path / "chosen"
    monkeypatch.delenv("GEOSKIP_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert data_root() == tmp_path / "xdg" / "geoskip"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the standard says to ignore it
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".local" / "share" / "geoskip"


def test_the_best_place_that_exists_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=r"COMA_data\.zip or .*COMA_data\. Free for research"):
        COMA.find()
    (tmp_path / "coma" / "COMA_data").mkdir(parents=True)
    assert COMA.find() == tmp_path / "coma" / "COMA_data"
    (tmp_path / "coma" / "COMA_data.zip").touch()
    assert COMA.find() == tmp_path / "coma" / "COMA_data.zip"
    assert COMA.find(tmp_path) == tmp_path
