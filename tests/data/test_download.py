"""Downloads against a server on this machine that can break off, lie, and ignore ranges."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from geoskip.data import idx as module
from geoskip.data.idx import DownloadError, Remote, fetch
from tests.records.windows import simulate_windows

CONTENT = bytes(range(256)) * 40


class Server(ThreadingHTTPServer):
    """Serves ``content``; each fault of ``faults`` spoils one answer, in turn."""

    content = CONTENT
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[str] = []
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        start = self.headers.get("Range", "")
        self.server.asked.append(start)
        begin = int(start[6:-1]) if start and self.server.ranges else 0
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if fault.isdigit():
            self.send_error(int(fault))
            return
        body = self.server.content[begin:]
        self.send_response(206 if begin else 200)
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


def remote(server: Server, content: bytes = CONTENT) -> Remote:
    return Remote(server.url, len(content), hashlib.sha256(content).hexdigest())


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.bin"
    assert fetch(remote(server), target).read_bytes() == CONTENT
    fetch(remote(server), target)
    assert server.asked == [""]
    assert only(target.parent) == ["file.bin"]


def test_a_broken_connection_is_resumed_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.faults = ["break", "break"]
    assert fetch(remote(server), tmp_path / "file.bin").read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert server.asked == ["", f"bytes={half}-", f"bytes={half + half // 2}-"]


def test_a_later_call_continues_an_earlier_one(server: Server, tmp_path: Path) -> None:
    server.faults = ["break", "503", "503", "503"]
    with pytest.raises(DownloadError, match="503"):
        fetch(remote(server), tmp_path / "file.bin")
    assert only(tmp_path) == [".file.bin.lock", "file.bin.part"]
    server.asked.clear()
    fetch(remote(server), tmp_path / "file.bin")
    assert server.asked == [f"bytes={len(CONTENT) // 2}-"]
    assert only(tmp_path) == ["file.bin"]


def test_a_server_without_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.ranges, server.faults = False, ["break"]
    assert fetch(remote(server), tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"x" * 100, b"x" * len(CONTENT)])
def test_a_spoilt_beginning_is_thrown_away(server: Server, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "file.bin.part").write_bytes(part)
    assert fetch(remote(server), tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_beginning_the_server_refuses_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"x")
    server.faults = ["416"]
    assert fetch(remote(server), tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "fault"), [(CONTENT[::-1], "sha256"), (b"x" + CONTENT, "sha256"), (CONTENT[:-1], "ended 1 bytes early")]
)
def test_other_content_never_gets_the_name(server: Server, tmp_path: Path, content: bytes, fault: str) -> None:
    server.content = content
    with pytest.raises(DownloadError, match=rf"{fault}.*Fetch it by hand and put it at .*file\.bin"):
        fetch(remote(server), tmp_path / "file.bin")
    assert not (tmp_path / "file.bin").exists()


def test_a_damaged_file_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1] + b"x")
    assert fetch(remote(server), tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_missing_file_fails_at_once(server: Server, tmp_path: Path) -> None:
    server.faults = ["404"]
    with pytest.raises(DownloadError, match="404"):
        fetch(remote(server), tmp_path / "file.bin")
    assert server.asked == [""]


def test_no_server_is_a_clean_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    with pytest.raises(DownloadError, match="refused"):
        fetch(Remote("http://127.0.0.1:9/file", 1, "0"), tmp_path / "file")


def test_other_schemes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="only http and https"):
        fetch(Remote("file:///etc/passwd", 1, "0"), tmp_path / "file")


def test_the_lock_of_a_process_killed_at_its_end_is_removed(server: Server, tmp_path: Path) -> None:
    fetch(remote(server), tmp_path / "file.bin")
    for name in (".file.bin.lock", ".file.bin.lock.owner"):
        (tmp_path / name).touch()
    fetch(remote(server), tmp_path / "file.bin")
    assert only(tmp_path) == ["file.bin"]
    assert server.asked == [""]


def test_files_are_downloaded_on_windows(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only a file that is open for writing can be synced, and no folder can."""
    simulate_windows(monkeypatch)
    assert fetch(remote(server), tmp_path / "file.bin").read_bytes() == CONTENT
    assert "file.bin.part" not in only(tmp_path)
