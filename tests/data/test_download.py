"""Downloads from a local server that can break off and send something else."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from geoskip.data import idx as module
from geoskip.data.idx import ATTEMPTS, DownloadError, fetch
from tests.records.windows import simulate_windows

CONTENT = bytes(range(256)) * 40


class Server(ThreadingHTTPServer):
    """Serves ``content``; each fault of ``faults`` spoils one answer, in turn."""

    content = CONTENT

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[str] = []
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked += 1
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if fault.isdigit():
            self.send_error(int(fault))
            return
        body = self.server.content
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault == "break" else body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def fetch_from(server: Server, target: Path, content: bytes = CONTENT) -> None:
    fetch(server.url, len(content), hashlib.sha256(content).hexdigest(), target)


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.bin"
    fetch_from(server, target)
    assert target.read_bytes() == CONTENT
    assert only(target.parent) == ["file.bin"]


@pytest.mark.parametrize("faults", [["break", "break", "503"], ["500"]])
def test_a_broken_connection_is_tried_again(server: Server, tmp_path: Path, faults: list[str]) -> None:
    server.faults = list(faults)
    fetch_from(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == len(faults) + 1


def test_after_a_few_attempts_it_gives_up(server: Server, tmp_path: Path) -> None:
    server.faults = ["503"] * ATTEMPTS
    with pytest.raises(DownloadError, match=r"503.*; put the file at .*file\.bin yourself"):
        fetch_from(server, tmp_path / "file.bin")
    assert (only(tmp_path), server.asked) == ([], ATTEMPTS)


@pytest.mark.parametrize("content", [CONTENT[::-1], b"x" + CONTENT, CONTENT[:-1]])
def test_other_content_is_never_written(server: Server, tmp_path: Path, content: bytes) -> None:
    server.content = content
    with pytest.raises(DownloadError, match=r"do not match the sha256\); put the file at .*file\.bin yourself"):
        fetch_from(server, tmp_path / "file.bin")
    assert only(tmp_path) == []


def test_a_missing_file_fails_at_once(server: Server, tmp_path: Path) -> None:
    server.faults = ["404"]
    with pytest.raises(DownloadError, match="404"):
        fetch_from(server, tmp_path / "file.bin")
    assert server.asked == 1


def test_no_server_is_a_clean_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    with pytest.raises(DownloadError, match="refused"):
        fetch("http://127.0.0.1:9/file", 1, "0", tmp_path / "file")


def test_files_are_downloaded_on_windows(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only a file that is open for writing can be synced, and no folder can."""
    simulate_windows(monkeypatch)
    fetch_from(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
