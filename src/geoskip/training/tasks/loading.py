"""From the name of a data set, or a path, to the set that a task trains on."""

from __future__ import annotations

import os
from typing import Any

from geoskip.data.catalog import DATA_SETS, FOLDERS, names_for
from geoskip.records.system import user_path
from geoskip.registry import unknown_name
from geoskip.training.config import Config


def load_data(config: Config) -> Any:
    """The set that ``config.data`` names; ValueError if it is neither a set for the task nor a path."""
    named, path = names_for(config.task), user_path(config.data)
    if config.data in named:
        return DATA_SETS[config.data].read(config.data, config.data_options)
    if config.data in DATA_SETS:
        task = DATA_SETS[config.data].task
        raise ValueError(f"data: {config.data} is for {task}; {config.task} trains on {', '.join(named)}, or a path")
    if path.exists():
        return FOLDERS[config.task].read(config.data, config.data_options, path)
    if os.sep in config.data or "/" in config.data:
        raise ValueError(f"data: there is no such path: {config.data}; say where the data are now with --data")
    raise ValueError(f"data: there is no such path, and as a set it is an {unknown_name(config.data, named)}")
