"""What a task is: its data, its model, its loss and its figures; and the registry that finds tasks by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import isclass, signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from geoskip.arguments import check_arguments, check_value
from geoskip.data import Split
from geoskip.data.catalog import load_data
from geoskip.graphs import Graph
from geoskip.operators import make_operator, operator_info
from geoskip.registry import Registry, check_choice, check_names
from geoskip.shapes import Float, Int
from geoskip.training.config import TASK_SETTINGS, Config
from geoskip.training.trained import Context


@dataclass(frozen=True)
class Evaluation:
    """Figures of a model on the test or validation items.

    metrics: figures by name, as :class:`geoskip.records.RunRecord` names them.
    curves: points (x, y) by name.
    arrays: further results for pictures and analysis, such as the error of each vertex. Those named ``per_item_…``
        have one value per item; a run keeps them in ``items.safetensors``.
    """

    metrics: Mapping[str, float]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A model as a function of one tensor, for ``geoskip export``: a module, an example of its input, and the axes of
    the input that may have other lengths."""

    module: nn.Module
    example: Tensor
    dynamic: dict[int, Any] = field(default_factory=dict)


class Task(ABC):
    """A data set, the model that is trained on it, the loss, and the figures.

    A new task defines :attr:`model_class`, :meth:`model_arguments`, :meth:`batch`, :meth:`loss` and :meth:`evaluate`;
    everything else has a default. Use it by ``module:Name``, by an entry point in the group ``geoskip.tasks``, or
    register it under its ``name`` with ``TASKS.register``. The name is stored in the run, so that ``geoskip evaluate``,
    ``apply``, ``export`` and ``report`` find the class again.

    Training items are numbered from 0. The data are on ``device``, and batches are gathered there: :meth:`batch` and
    :meth:`loss` must not wait for the device, so that a step can be captured as a CUDA graph.

    Attributes:
        name: under which ``TASKS.register`` adds it.
        model_class: class of the model. It is called with :meth:`model_arguments`, ``operator``, ``skip``,
            ``kernel_size``, the options of the operator, and the settings under ``model.``, which are checked against
            its signature.
        context_class: class of :meth:`context`.
        data_from: the task whose data sets it trains on, if it is another one.
        settings: those of ``TASK_SETTINGS`` that it has.
        from_data: arguments of the model that follow from the data, as :meth:`model_arguments` gives them: they are no
            settings.
        data_arguments: settings under ``model.`` that are not arguments of the model, with their types.
        actions: what ``geoskip apply --do NAME`` can do with a trained model, the default first. An action is called as
            ``action(trained, paths, outputs, **options)`` (see :mod:`geoskip.inference.apply`), or is given as
            ``module:Name``.
        folders_are_subjects: whether items in one folder belong together, so that the validation gets all or none.
        num_samples: how many test items a run keeps for the report.
        output_layer: the layer of the model that follows the number of classes, if there is one. Fine-tuning replaces
            it where the classes are others.

        config: the configuration of the run.
        data: the data set, with a ``split``.
        train: numbers of the training items in the data set, on ``device``.
        names: of the training items, for messages.
        device: where the data are.
    """

    name: ClassVar[str] = ""
    model_class: ClassVar[type[nn.Module]]
    context_class: ClassVar[type[Context]] = Context
    data_from: ClassVar[str] = ""
    settings: ClassVar[tuple[str, ...]] = ()
    from_data: ClassVar[tuple[str, ...]] = ()
    data_arguments: ClassVar[Mapping[str, Any]] = {}
    actions: ClassVar[Mapping[str, str | Callable[..., Any]]] = {}
    folders_are_subjects: ClassVar[bool] = True
    num_samples: ClassVar[int] = 4
    output_layer: ClassVar[str] = ""

    def __init__(self, config: Config, data: Any = None) -> None:
        self.check_config(config)
        data = self.load_data(config) if data is None else data
        names = getattr(data, "names", None) or None
        self.config = config
        self.data = replace(data, split=chosen_split(data.split, config, names if self.folders_are_subjects else None))
        self.device = torch.device("cpu")
        self.train: Tensor = self.data.split.train
        self.names = [f"item {item}" if names is None else names[item] for item in self.train.tolist()]
        # Epochs done. Until training sets it, it is the last one, since trained models are evaluated then.
        self.epoch: int = config.optim.epochs

    # What a new task must define.

    @abstractmethod
    def model_arguments(self) -> dict[str, Any]:
        """Arguments of the model that follow from the data, such as ``num_classes``. Those that JSON can hold are
        stored in the context; for others override :meth:`stored_arguments`."""

    @abstractmethod
    def batch(self, items: Int[Tensor, " items"]) -> Any:
        """Training items, as :meth:`loss` takes them; ``items`` is on the task's device."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        """The mean over the items of the batch."""

    @abstractmethod
    def evaluate(self, model: nn.Module, split: str = "test") -> Evaluation:
        """Figures on the items of a split; leaves the model in evaluation mode."""

    # What it may define.

    @classmethod
    def defaults(cls, operator: str) -> dict[str, Any]:
        """Values of settings that are not given: ``data``, ``kernel_size``, ``optim`` and others."""
        return {}

    @classmethod
    def load_data(cls, config: Config) -> Any:
        """The data set that ``config.data`` names; ValueError if it is neither one for this task nor a path."""
        return load_data(config.data, config.data_options, cls.data_from or cls.name or config.task)

    def samples(self, model: nn.Module, count: int, split: str = "test") -> Any:
        """What the model does with ``count`` items of a split: a record of :mod:`geoskip.records.samples`, or None."""
        return None

    def context_fields(self) -> dict[str, Any]:
        """The fields that :attr:`context_class` adds."""
        return {}

    @classmethod
    def stored_arguments(cls, config: Config, context: Context, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        """:meth:`model_arguments` of a stored model, without the data."""
        return dict(context.arguments)

    @classmethod
    def program(cls, config: Config, model: nn.Module, context: Context) -> Program:
        """The model as a program for ``geoskip export --program``; ValueError if it cannot be one."""
        raise ValueError(
            f"a model of {config.task} cannot be exported as a program; share the folder with model.safetensors and "
            "config.json instead"
        )

    @classmethod
    def check_config(cls, config: Config) -> None:
        """ValueError for settings that do not fit; no data are loaded."""
        operator = operator_info(config.operator)
        for name in cls.from_data:
            if name in config.model:
                raise ValueError(f"model.{name}: follows from the data and cannot be set")
        other = ("operator", "skip", "kernel_size", "options", *cls.from_data)
        known = [name for name in (*signature(cls.model_class).parameters, *cls.data_arguments) if name not in other]
        check_names(config.model, known, "model.")
        check_arguments(cls.model_class, config.model, "model.")
        for name in config.model.keys() & cls.data_arguments.keys():
            check_value(f"model.{name}", config.model[name], cls.data_arguments[name])
        for name in set(TASK_SETTINGS) - set(cls.settings):
            if getattr(config, name) not in (getattr(Config, name, None), {}):
                raise ValueError(f"{name}: {config.task} has no such setting")
        check_arguments(operator.make, config.options, "options.")
        # Built once without weights: this checks the kernel size and the options.
        try:
            with torch.device("meta"):
                make_operator(config.operator, 1, 1, kernel_size=config.kernel_size, dim=1, **config.options)
        except RuntimeError as error:
            raise ValueError(f"kernel_size: {config.kernel_size} is too large for any memory") from error
        except (ValueError, TypeError) as error:
            if str(error).partition(":")[0] in config.options:
                raise ValueError(f"options.{error}") from error
            raise

    def start_from(self, weights: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Called before the model is made if it gets the weights of another one: what belongs to these weights, such as
        the levels of a mesh, is taken from them instead of from the data. ValueError if the data do not fit."""

    def begin_epoch(self, epoch: int) -> None:
        """Prepare the batches of an epoch, counted from 0. Tensors change in place: captured steps read them."""
        self.epoch = epoch

    def before_training(self) -> None:  # noqa: B027
        """Called once before the first step of a run that will be evaluated: what :meth:`evaluate` needs beyond the
        data is loaded or computed here, so that what is missing is not found after hours of training."""

    def after_training(self, model: nn.Module) -> None:  # noqa: B027
        """Called once after the last step, before the model is evaluated and stored."""

    def layout(self, num_items: int) -> int:
        """A number that changes when batches of this size change their shapes: a step is then captured again."""
        return 0

    def prepare(self, num_items: int) -> None:  # noqa: B027
        """Compute what all batches of this size need, if values must be read for it: a step is traced without values,
        to find the kernels that it needs."""

    def to(self, device: torch.device | str) -> Task:
        """The same task with its data, tensors and graphs on another device; cached properties stay where they are."""
        moved = copy(self)
        moved.device = torch.device(device)
        for name, value in vars(self).items():
            if isinstance(value, Tensor | Graph) and not isinstance(getattr(type(self), name, None), cached_property):
                setattr(moved, name, value.to(device))
        if hasattr(self.data, "to"):
            moved.data = self.data.to(device)
        return moved

    # What every task has.

    @property
    def num_items(self) -> int:
        """How many training items there are."""
        return len(self.train)

    def split_items(self, name: str) -> Int[Tensor, " items"]:
        """The numbers of the items of a split, ``"test"`` or ``"validation"``."""
        check_choice("split", name, ("test", "validation"))
        return getattr(self.data.split, name)

    @property
    def num_test(self) -> int:
        """How many test items there are."""
        return len(self.split_items("test"))

    @property
    def monitored_split(self) -> str:
        """The split that is evaluated during training: validation items if there are any, otherwise the test."""
        return "validation" if len(self.split_items("validation")) else "test"

    @property
    def final_split(self) -> str:
        """The split that a finished run is evaluated on."""
        return "test" if self.config.test else "validation"

    @classmethod
    def build(cls, config: Config, arguments: Mapping[str, Any]) -> nn.Module:
        """The model, its initial values drawn from torch's generator."""
        operator = {"operator": config.operator, "skip": config.skip, "kernel_size": config.kernel_size}
        given = {name: value for name, value in config.model.items() if name not in cls.data_arguments}
        options = {**operator, **config.options, **given}
        if both := sorted(arguments.keys() & options.keys()):
            raise ValueError(f"model.{both[0]}: follows from the data and cannot be set")
        try:
            return cls.model_class(**arguments, **options)
        except ValueError as error:
            argument = str(error).partition(":")[0]
            if argument in operator or argument not in signature(cls.model_class).parameters:
                raise
            raise ValueError(f"model.{error}") from error

    def make_model(self) -> nn.Module:
        """The model with the initial values of ``config.seed``, on the CPU."""
        arguments = self.model_arguments()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return self.build(self.config, arguments)

    def meta_model(self) -> nn.Module:
        """The model without memory for its weights, to count them."""
        arguments = self.model_arguments()
        with torch.device("meta"):
            return self.build(self.config, arguments)

    def context(self) -> Context:
        """What a trained model needs to know about these data."""
        plain = (bool, int, float, str, list, tuple, dict)
        arguments = {name: value for name, value in self.model_arguments().items() if isinstance(value, plain)}
        content = getattr(self.data, "content", "")
        return self.context_class(arguments=arguments, content=content, **self.context_fields())


TASKS: Registry[type[Task]] = Registry(
    "task",
    {
        "reconstruction": "geoskip.training.tasks.reconstruction:Reconstruction",
        "correspondence": "geoskip.training.tasks.correspondence:Correspondence",
        "classification": "geoskip.training.tasks.classification:Classification",
    },
    entry_points="geoskip.tasks",
)


def find_task(name: str) -> type[Task]:
    """The class of a task by its name in a configuration."""
    task = TASKS.get(name)
    if not (isclass(task) and issubclass(task, Task)):
        raise ValueError(f"task: {name} is not a subclass of geoskip.training.Task")
    return task


def make_task(config: Config, data: Any = None) -> Task:
    """The task of a configuration, on the CPU.

    ``data`` is a data set in memory (:class:`~geoskip.data.MeshSet` for reconstruction,
    :class:`~geoskip.data.CorrespondenceSet`, :class:`~geoskip.data.GraphSet` for
    classification); without it ``config.data`` is loaded.
    """
    return find_task(config.task)(config, data)


def spiral_length(config: Config) -> int | None:
    """How long spirals must be; None if the operator needs none."""
    return operator_info(config.operator).spiral_length(config.kernel_size, config.options)


def chosen_split(split: Split, config: Config, names: Sequence[str] | None = None) -> Split:
    """The split cut down to ``train_items`` and ``test_items``, spread evenly, with ``validation`` items set aside;
    ValueError if nothing is left.

    ``names`` are those of all items. In names such as ``003/smile/012``, the first folder that differs is the subject.
    """
    if not len(split.train):
        raise ValueError(f"data: {config.data} has no items for training")
    for name, available in {"train_items": len(split.train), "test_items": len(split.test)}.items():
        if (wanted := getattr(config, name)) is not None and wanted > available:
            raise ValueError(f"{name}: {wanted:,} are asked for, but the data have {available:,}")
    train = spread_evenly(len(split.train), config.train_items)
    chosen = Split(split.train[train], split.test[spread_evenly(len(split.test), config.test_items)])
    if not config.validation:
        return chosen
    return chosen.with_validation(config.validation, None if names is None else _subjects(names))


def _subjects(names: Sequence[str]) -> list[str] | None:
    folders = [name.split("/")[:-1] for name in names]
    for level in range(min(map(len, folders))):
        if len({parts[level] for parts in folders}) > 1:
            return [parts[level] for parts in folders]
    return None


def spread_evenly(total: int, count: int | None) -> Int[Tensor, " chosen"]:
    """``count`` of the numbers below ``total``, evenly spaced; all of them if ``count`` is None or larger."""
    num_chosen = total if count is None else min(count, total)
    return torch.arange(num_chosen) * total // max(num_chosen, 1)


def spread_widely(total: int, count: int) -> Int[Tensor, " chosen"]:
    """``count`` of the numbers below ``total``, ascending, at multiples of the golden ratio.

    Items are sorted by person, then by expression or pose: evenly spaced ones may all have the same expression. If
    almost all items are chosen, they are evenly spaced.
    """
    golden = (5**0.5 - 1) / 2
    items = (torch.arange(count, dtype=torch.float64) * golden % 1 * total).long().unique()
    return items if 0 < len(items) == count <= total else spread_evenly(total, count)


def in_parts(count: int, size: int, function: Callable[[Tensor], Any]) -> list[Any]:
    """``function`` of item numbers 0 to ``count``, ``size`` at a time, without gradients."""
    with torch.inference_mode():
        return [function(part) for part in torch.arange(count).split(size)]
