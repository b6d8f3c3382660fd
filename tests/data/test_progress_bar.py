"""Progress bars on a terminal and in a log."""

import io

import pytest

from geoskip.data import progress_bar as module
from geoskip.data.progress_bar import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_short_job_says_nothing_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("job", 3) as advance:
        advance(3)
    assert capsys.readouterr().err == ""


def test_a_long_job_writes_lines_in_a_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_LINE_SECONDS", 0.0)
    with progress_bar("job", 2000) as advance:
        advance(1000)
        advance(500)
    assert capsys.readouterr().err == "job: 1,000 of 2,000\n"


def test_a_total_that_is_not_known_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_LINE_SECONDS", 0.0)
    with progress_bar("job", None) as advance:
        advance(3)
    assert capsys.readouterr().err == "job: 3\n"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar("job", 2) as advance:
        advance(1)
    assert "job" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
