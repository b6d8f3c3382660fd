"""What was measured on the way: a line of JSON for every epoch, and TensorBoard for those who want it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geoskip.records.atomic import write_whole
from geoskip.records.reading import ReadError, parse_json


class Journal:
    """``metrics.jsonl``: one object a line, with the ``step`` it belongs to and whatever was measured.

    A run that goes on from a checkpoint takes up the journal at the checkpoint's step; lines that a kill cut in half
    go too.
    """

    def __init__(self, path: Path, step: int = 0, tensorboard: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_journal(path) if line["step"] <= step] if step else []
        write_whole(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")
        self._board = _board(path.parent / "tensorboard", step) if tensorboard else None

    def write(self, step: int, values: Mapping[str, int | float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal, without those that are not whole."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            line = parse_json(text)
        except ReadError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard is not installed: pip install tensorboard") from error
    return SummaryWriter(str(folder), purge_step=step)
