"""Checkpoints of a model without skips, loaded into the same model with them."""

from __future__ import annotations

from typing import Any

from torch import nn


def adopt_plain_keys(conv: nn.Module, own: set[str], state_dict: dict[str, Any], prefix: str) -> bool:
    """Where ``state_dict`` holds the bare convolution at ``prefix``, move its keys to ``prefix + "conv."``.

    Returns whether it does hold that, and not the block. All keys together decide, since a convolution may have a
    parameter ``weight``, as a skip has, or a child ``conv``: they are taken for the one that they resemble more.
    ``own`` are the names of the skip's own parameters.
    """
    present = {key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)}
    bare = set(conv.state_dict(keep_vars=True))
    block = {f"conv.{key}" for key in bare} | own
    if _likeness(present, bare) <= _likeness(present, block):
        return False
    # All taken out before any is put back: one's new key may be another's old.
    values = {key: state_dict.pop(prefix + key) for key in sorted(present)}
    state_dict.update({f"{prefix}conv.{key}": value for key, value in values.items()})
    return True


def _likeness(these: set[str], those: set[str]) -> float:
    """Keys in common, as a share of all: 1 for equal sets, 0 for sets that share nothing."""
    return len(these & those) / len(these | those) if these | those else 1.0
