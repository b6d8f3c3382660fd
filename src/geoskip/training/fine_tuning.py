"""Fine-tuning: training that starts from the weights of a run or an exported model."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from geoskip.training.config import Config
from geoskip.training.pretrained import load
from geoskip.training.run import Run, changed_settings
from geoskip.training.tasks import Task
from geoskip.training.trained import Trained, check_weights, weights_sha256

# Settings that the weights depend on, and those among them that only matter for training.
ARCHITECTURE = ("operator", "skip", "kernel_size", "pseudo", "finest_pseudo", "options", "model")
TRAINING_ONLY = ("options.init", "model.dropout")

log = logging.getLogger(__name__)


def open_source(config: Config, folder: Path) -> tuple[Config, Trained | None]:
    """The configuration with the checksum of the weights at ``init_from``, and the model there.

    A run that was started in ``folder`` does not need the model any more: it is None if it was removed.
    """
    assert config.init_from is not None
    source = Path(config.init_from)
    if not source.exists():
        if begun_with := _begun_with(folder):
            return replace(config, init_sha256=begun_with), None
        raise ValueError(f"init_from: there is no {source}; name the folder of a run or an exported model")
    trained = load(source)
    return replace(config, init_sha256=weights_sha256(trained.model.state_dict())), trained


def _begun_with(folder: Path) -> str | None:
    try:
        return Run.open(folder).config.init_sha256
    except (OSError, ValueError):
        return None


def initial_weights(task: Task, source: Trained) -> dict[str, Tensor]:
    """The weights that the task's model starts from: those of ``source``, but for the last layer if it has other
    classes. ValueError if it is another model."""
    if not isinstance(source.model, task.model_class):
        made = type(source.model).__name__
        raise ValueError(
            f"init_from: the model in {source.folder} is a {made}, but {task.config.task} trains a "
            f"{task.model_class.__name__}"
        )
    changed = [
        f"{name} {old} (here {new})"
        for name, (old, new) in changed_settings(source.config, task.config).items()
        if name.partition(".")[0] in ARCHITECTURE and name not in TRAINING_ONLY
    ]
    if changed:
        raise ValueError(
            f"init_from: the model in {source.folder} was trained with {', '.join(changed)}; use the same settings"
        )
    weights = source.model.state_dict()
    task.start_from(weights)
    expected = task.meta_model().state_dict()
    head = [name for name in expected.keys() & weights.keys() if name.rpartition(".")[0] == task.output_layer]
    sizes = [(len(weights[name]), len(expected[name])) for name in head if len(weights[name]) != len(expected[name])]
    if sizes:
        weights, expected = (
            {name: tensor for name, tensor in tensors.items() if name not in head} for tensors in (weights, expected)
        )
    try:
        check_weights(expected, weights)
    except ValueError as error:
        raise ValueError(f"init_from: the model in {source.folder} does not fit the data: {error}") from error
    log.info("starting from the weights of %s", source.folder)
    if sizes:
        log.warning("the last layer starts from new weights: the model has %d classes, the data %d", *sizes[0])
    return weights
