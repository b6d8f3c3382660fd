"""How long a row is trained: as in the paper, shorter, or just long enough to see that it runs.

A shorter schedule goes through the paper's learning rates faster, or leaves out the epochs of the lowest rates:

| task | full | short |
|---|---|---|
| reconstruction | 300 epochs, × 0.99 each | 6 epochs, × 0.99⁵⁰ each |
| correspondence | 1000 epochs, × 0.99 each (FeaStNet: × 0.5 every 100) | the first 300 of them |
| classification | 500 epochs, × 0.5 every 30 | 20 epochs, × 0.5 every 5 |

The last 380 epochs of the paper's classification, at rates of 1/16 and below, have no part in the short one, nor have
the last 700 of its correspondence, at 1/20 and below (FeaStNet: 1/8). The short correspondence multiplies matrices in
TensorFloat-32 on a GPU. ``first200`` is the first 200 epochs of the paper's schedule at its own rates. In all of them
the last epoch counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geoskip.training.config import Config

SCHEDULES = ("full", "short", "smoke", "firstN, such as first200")
FIRST = re.compile(r"first([1-9]\d*)")


@dataclass(frozen=True)
class Short:
    """``epochs`` that go through ``speed`` times as many epochs of the paper's rates, with ``tf32`` or without."""

    epochs: int
    speed: int
    tf32: bool = False


SHORT = {
    "reconstruction": Short(epochs=6, speed=50),
    "correspondence": Short(epochs=300, speed=1, tf32=True),
    "classification": Short(epochs=20, speed=6),
}


def shortened(config: Config, schedule: str) -> Config:
    """A configuration with the paper's schedule, under another one."""
    if first := FIRST.fullmatch(schedule):
        epochs = int(first[1])
        if epochs > config.optim.epochs:
            raise ValueError(f"schedule: {schedule} is longer than the paper's {config.optim.epochs} epochs; use full")
        return replace(config, optim=replace(config.optim, epochs=epochs))
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule: unknown name {schedule!r}; choose from {', '.join(SCHEDULES)}")
    if schedule == "full":
        return config
    if schedule == "smoke":
        return replace(config, optim=replace(config.optim, epochs=1), train_items=4, test_items=2)
    optim, short = config.optim, SHORT[config.task]
    if optim.decay_every % short.speed == 0:
        decay, every = optim.lr_decay, optim.decay_every // short.speed
    else:
        decay, every = optim.lr_decay ** (short.speed / optim.decay_every), 1
    faster = replace(optim, epochs=short.epochs, lr_decay=decay, decay_every=every)
    return replace(config, optim=faster, tf32=config.tf32 or short.tf32)
