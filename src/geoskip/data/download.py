"""Download a file whose sha256 is known: resumed after a break, checked, renamed into place whole."""

import hashlib
import http.client
import logging
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoskip.data.locks import exclusive
from geoskip.data.progress import ProgressBar
from geoskip.records.files import replace_file, sync

log = logging.getLogger(__name__)

ATTEMPTS = 4
PAUSE_SECONDS = 1.0
TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 3600.0
BLOCK = 1 << 18


class DownloadError(OSError):
    """A file that could not be fetched; the message says from where, why, and how to do it by hand."""


@dataclass(frozen=True)
class Remote:
    """A file of the network: where it is, how long it is and the sha256 of what it must contain."""

    url: str
    num_bytes: int
    sha256: str


def download(remote: Remote, target: Path) -> Path:
    """Fetch ``remote`` to ``target`` unless it is there already, with the same sha256.

    Bytes go to ``<target>.part``, which a later call continues; nothing is called ``target`` before its checksum
    is right. TLS certificates are verified as Python does by default. DownloadError if it cannot be done.
    """
    if not remote.url.startswith(("https://", "http://")):
        raise DownloadError(f"{remote.url}: only http and https are downloaded")
    lock = target.with_name(f".{target.name}.lock")
    if matches(target, remote) and not lock.exists():  # a lock here is that of another process, or of a killed one
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(lock, PATIENCE_SECONDS):
        if not matches(target, remote):
            _fetch_and_install(remote, target)
        with suppress(OSError):  # Windows keeps files that are open, as this one is
            lock.unlink()
    return target


def matches(path: Path, remote: Remote) -> bool:
    """Whether the file is there with the length and sha256 it should have."""
    if not path.is_file() or path.stat().st_size != remote.num_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == remote.sha256


def _fetch_and_install(remote: Remote, target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    fault = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            log.info("%s: %s; trying again", remote.url, fault)
            time.sleep(PAUSE_SECONDS * attempt)
        try:
            _continue(remote, part)
        except urllib.error.HTTPError as error:
            error.close()
            fault = str(error)
            if error.code == 416:  # what lies in .part is no beginning of this file
                part.unlink(missing_ok=True)
            elif error.code < 500:
                break
            continue
        except (OSError, http.client.HTTPException) as error:
            fault = str(error)
            continue
        if matches(part, remote):
            _install(part, target)
            return
        part.unlink(missing_ok=True)
        fault = "what came does not match its sha256"
    raise DownloadError(f"{remote.url}: {fault}. Fetch it by hand and put it at {target}") from None


def _continue(remote: Remote, part: Path) -> None:
    """Fetch what ``part`` lacks; OSError when the connection ends before the file does."""
    have = part.stat().st_size if part.exists() else 0
    if have == remote.num_bytes:
        return
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        have = have if response.status == 206 else 0  # a server without ranges starts over
        label = f"download {part.stem}"
        with part.open("ab" if have else "wb") as file, ProgressBar(label, remote.num_bytes) as progress:
            progress.advance(have)
            _copy(response, file, remote.num_bytes - have, progress)


def _copy(response: Any, file: Any, missing: int, progress: ProgressBar) -> None:
    while missing > 0:
        block = response.read(min(BLOCK, missing))
        if not block:
            raise OSError(f"the connection ended {missing} bytes early")
        file.write(block)
        progress.advance(len(block))
        missing -= len(block)


def _install(part: Path, target: Path) -> None:
    sync(part)
    replace_file(part, target)
    sync(target.parent)
