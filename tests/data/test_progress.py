"""ProgressBar on a terminal and in a log."""

import io

import pytest

from geoskip.data import progress as module
from geoskip.data.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_short_job_says_nothing_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("job", 3) as progress:
        progress.advance(3)
    assert capsys.readouterr().err == ""


def test_a_long_job_writes_lines_in_a_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_LINE_SECONDS", 0.0)
    with ProgressBar("job", 2000) as progress:
        progress.advance(1000)
        progress.advance(500)
    assert capsys.readouterr().err == "job: 1,000 of 2,000\n"


def test_a_total_that_is_not_known_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_LINE_SECONDS", 0.0)
    with ProgressBar("job", None) as progress:
        progress.advance(3)
    assert capsys.readouterr().err == "job: 3\n"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with ProgressBar("job", 2) as progress:
        progress.advance()
        assert progress.bar.tasks[0].completed == 1
    assert "job" in terminal.getvalue()
