"""A run as tables call it."""

from __future__ import annotations

from geoskip.blocks import skip_prefix
from geoskip.operators import operator_info
from geoskip.training.config import Config


def method_name(config: Config) -> str:
    """The paper's name of operator and skip: ``Aff-MoNet``, and † where the center vertex is left out."""
    operator = operator_info(config.operator)
    without = any(config.options.get(option) == value for option, value in operator.without_center.items())
    return skip_prefix(config.skip) + operator.title + "†" * without


def row_name(config: Config) -> str:
    """The same with the kernel size: ``Aff-MoNet M=9``."""
    return method_name(config) + (f" M={config.kernel_size}" if config.kernel_size else "")
