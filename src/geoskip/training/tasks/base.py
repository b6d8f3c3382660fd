"""What the loop, the evaluation and the commands know of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from geoskip.data import Split
from geoskip.data.catalog import load_data as load_named_data
from geoskip.operators import OperatorInfo, make_operator, operator_info
from geoskip.registry import unknown_name
from geoskip.shapes import Float, Int
from geoskip.training.config import Config, check_arguments, check_type


@dataclass(frozen=True)
class Evaluation:
    """What a model does on the test or validation items.

    metrics: figures by name, as :class:`geoskip.records.RunRecord` names them.
    curves: points (x, y) by name.
    arrays: what pictures and closer looks need, such as the error of each vertex.
    """

    metrics: Mapping[str, float]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


class Task(ABC):
    """A data set, the model that is trained on it, and the loss; training items are numbered from 0.

    The data lie on ``device``, and batches are gathered there: :meth:`batch` and :meth:`loss` run on tensors of fixed
    shapes without waiting for the device, so that a step can be captured.

    Attributes:
        config: the run's configuration.
        names: what the training items are called, for messages.
        device: where the data are.
    """

    Model: ClassVar[type[nn.Module]]
    # Arguments of the model that follow from the data, and settings under model. that are the task's own, with their
    # kinds.
    from_data: ClassVar[tuple[str, ...]] = ()
    own: ClassVar[Mapping[str, str]] = {}
    # How many test items a run leaves behind to be looked at.
    num_samples: ClassVar[int] = 4
    config: Config
    names: Sequence[str]
    device: torch.device
    data: Any
    # Epochs done. Until training sets it, a task is as at the end: that is when trained models are evaluated.
    _epoch: int | None = None

    @property
    @abstractmethod
    def num_items(self) -> int:
        """How many training items there are."""

    def part(self, name: str) -> Int[Tensor, " items"]:
        """The numbers of the items of a part of the data set, ``"test"`` or ``"validation"``."""
        if name not in ("test", "validation"):
            raise ValueError(f"part: {unknown_name(name, ('test', 'validation'))}")
        return getattr(self.data.split, name)

    @property
    def num_test(self) -> int:
        """How many test items there are."""
        return len(self.part("test"))

    @property
    def watched(self) -> str:
        """The part that is evaluated during training: validation items where there are some, otherwise the test."""
        return "validation" if len(self.part("validation")) else "test"

    @property
    def final(self) -> str:
        """The part that a finished run is evaluated on."""
        return "test" if self.config.test else "validation"

    @property
    def epoch(self) -> int:
        """Epochs done; what is drawn again in each epoch follows from it."""
        return self.config.optim.epochs if self._epoch is None else self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def begin_epoch(self, epoch: int) -> None:
        """Get ready for the batches of an epoch, counted from 0. What it changes, it changes in place: captured steps
        go on to read the same tensors."""
        self.epoch = epoch

    def layout(self, num_items: int) -> int:
        """Changes when batches of this size get other shapes: a captured step is then captured again."""
        return 0

    @abstractmethod
    def to(self, device: torch.device | str) -> Task:
        """The same task with its data on another device."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The model, its initial values drawn from torch's generator."""

    @abstractmethod
    def batch(self, items: Int[Tensor, " items"]) -> Any:
        """Training items, as :meth:`loss` takes them; ``items`` are on the task's device."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        """The mean over the items of the batch."""

    @abstractmethod
    def evaluate(self, model: nn.Module, part: str = "test") -> Evaluation:
        """Figures on the items of a part; the model is left in evaluation mode."""

    @abstractmethod
    def samples(self, model: nn.Module, count: int, part: str = "test") -> Any:
        """What the model does with ``count`` items of a part, spread evenly over all of them: a record of
        :mod:`geoskip.records.samples`."""

    def make_model(self) -> nn.Module:
        """The model with the initial values of ``config.seed``, on the CPU."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return self.build()

    @property
    def operator(self) -> OperatorInfo:
        """What the operator declares about itself; ValueError if there is none of this name."""
        return operator_info(self.config.operator)

    def outline(self) -> nn.Module:
        """The model without memory for its weights, to be counted."""
        with torch.device("meta"):
            return self.build()

    def constants(self) -> dict[str, Tensor]:
        """What a trained model needs of its data to be applied, such as mean and deviation of the positions."""
        return {}

    def facts(self) -> dict[str, Any]:
        """The same in plain JSON: units, names of classes, the hash of the topology."""
        return {}

    def check(self) -> None:
        """ValueError for what can be wrong before any data are loaded: unknown names, an operator that does not fit."""
        self.check_network(self.config)

    @classmethod
    def check_network(cls, config: Config) -> None:
        """ValueError for arguments of the model and of the operator that they do not take."""
        operator = operator_info(config.operator)
        hidden = ("self", "options", "operator", "skip", "kernel_size", *cls.from_data)
        parameters = signature(cls.Model.__init__).parameters.items()
        known = {name: str(entry.annotation) for name, entry in parameters if name not in hidden} | dict(cls.own)
        for name, value in config.model.items():
            if name not in known:
                raise ValueError(f"model.{name}: {unknown_name(name, list(known))}")
            check_type(f"model.{name}", value, known[name])
        if config.task != "classification":
            for name, default in (("pseudo_scale", "set"), ("finest_pseudo", "cartesian"), ("coarsening", {})):
                if getattr(config, name) != default:
                    raise ValueError(f"{name}: is for classification, and {config.task} has no such setting")
        check_arguments(operator.make, config.options, "options.")
        # Made once for nothing, without its weights: it checks the kernel size and the options.
        try:
            with torch.device("meta"):
                make_operator(config.operator, 1, 1, kernel_size=config.kernel_size, dim=1, **config.options)
        except RuntimeError as error:
            raise ValueError(f"kernel_size: {config.kernel_size} is too large for any memory") from error

    def chosen(self) -> dict[str, Any]:
        """The arguments of the model that the configuration gives."""
        operator = {"operator": self.config.operator, "skip": self.config.skip, "kernel_size": self.config.kernel_size}
        given = {name: value for name, value in self.config.model.items() if name not in self.own}
        return {**operator, **self.config.options, **given}

    def spiral_length(self) -> int | None:
        """How long spirals have to be; None where the operator follows none."""
        return spiral_length(self.config)


def spiral_length(config: Config) -> int | None:
    """How long spirals have to be; None where the operator follows none."""
    return operator_info(config.operator).spiral_length(config.kernel_size, config.options)


def chosen_split(split: Split, config: Config, names: Sequence[str] | None = None) -> Split:
    """The split cut down to ``train_items`` and ``test_items``, spread evenly, with ``validation`` items set aside;
    ValueError if nothing is left.

    ``names`` are those of all items. Names such as ``003/smile/012`` begin with the subject.
    """
    if not len(split.train):
        raise ValueError(f"data: {config.data} has no items for training")
    train = spread_evenly(len(split.train), config.train_items)
    chosen = Split(split.train[train], split.test[spread_evenly(len(split.test), config.test_items)])
    if not config.validation:
        return chosen
    subjects = None if names is None or not all("/" in name for name in names) else [n.split("/")[0] for n in names]
    return chosen.with_validation(config.validation, subjects)


def spread_evenly(total: int, count: int | None) -> Int[Tensor, " chosen"]:
    """``count`` of the numbers below ``total``, as far apart as can be; all, where no fewer are wanted."""
    wanted = total if count is None else min(count, total)
    return torch.arange(wanted) * total // max(wanted, 1)


def in_parts(count: int, size: int, function: Callable[[Tensor], Any]) -> list[Any]:
    """``function`` of item numbers 0 to ``count``, ``size`` at a time, without gradients."""
    with torch.inference_mode():
        return [function(part) for part in torch.arange(count).split(size)]


def load_data(config: Config) -> Any:
    """The set that ``config.data`` names; ValueError if it is neither a set for the task nor a path."""
    return load_named_data(config.data, config.data_options, config.task)


def make_task(config: Config, data: Any = None) -> Task:
    """The task of a configuration, on the CPU.

    ``data`` is a set that is at hand (:class:`~geoskip.data.MeshSet` for reconstruction,
    :class:`~geoskip.data.CorrespondenceSet`, :class:`~geoskip.data.GraphSet` for
    classification); without it ``config.data`` is loaded.
    """
    make: Any = task_class(config.task)
    return make(config, data)


def task_class(name: str) -> type[Task]:
    """The class of a task by its name in a configuration."""
    if name == "reconstruction":
        from geoskip.training.tasks.reconstruction import Reconstruction

        return Reconstruction
    if name == "correspondence":
        from geoskip.training.tasks.correspondence import Correspondence

        return Correspondence
    from geoskip.training.tasks.classification import Classification

    return Classification
