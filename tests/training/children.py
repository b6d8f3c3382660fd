"""Training in processes of their own, which may be killed. They start from one that has loaded everything."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from geoskip.training.config import Config
from geoskip.training.devices import LostProcess
from geoskip.training.loop import train
from geoskip.training.progress import choose_progress
from geoskip.training.signals import Interrupted
from geoskip.training.tasks import make_task
from tests.training import sets

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.training.children"])
LOST, BAD = 71, 72


def start(
    config: Config, folder: Path, rank: int = 0, size: int = 1, port: int = 0, terminal: str = ""
) -> tuple[BaseProcess, Any]:
    """A process that trains, on a terminal of its own if one is named, and the event that it is about to."""
    ready = CONTEXT.Event()
    process = CONTEXT.Process(target=_main, args=(config, folder, rank, size, port, ready, terminal), daemon=True)
    process.start()
    return process, ready


def _main(config: Config, folder: Path, rank: int, size: int, port: int, ready: Any, terminal: str) -> None:
    torch.set_num_threads(1)
    if terminal:
        os.setsid()
        descriptor = os.open(terminal, os.O_RDWR)  # the first terminal of a session is the one that controls it
        for number in (0, 1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)
    if size > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    task = make_task(config, sets.data(config.task))
    # Made here, so that what is killed is training.
    task.make_model()
    ready.set()
    try:
        train(config, folder, task=task, progress=choose_progress() if terminal else None)
    except Interrupted as stopped:
        sys.exit(stopped.code)
    except LostProcess:
        sys.exit(LOST)
    except ValueError:
        sys.exit(BAD)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
