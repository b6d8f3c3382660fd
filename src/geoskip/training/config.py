"""The configuration of a run: every choice that its result depends on. Its task defines the defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from geoskip.arguments import check_fields, check_least
from geoskip.records.reading import ReadError, parse_json
from geoskip.registry import check_choice, check_names, unknown_name

CHOICES = {
    "pseudo": ("position", "degree"),
    "pseudo_scale": ("set", "batch"),
    "finest_pseudo": ("cartesian", "polar"),
    "precision": ("float32", "bf16", "fp16"),
}
# Settings that only some tasks have; a task lists its own in ``Task.settings``.
TASK_SETTINGS = ("pseudo_scale", "finest_pseudo", "coarsening", "recalibrate")


@dataclass(frozen=True)
class Optim:
    """Adam and how long it runs: after every ``decay_every`` epochs the rate is multiplied by ``lr_decay``.

    ``batch_size`` is the number of items of a step over all processes together.
    """

    lr: float = 1e-3
    lr_decay: float = 0.99
    decay_every: int = 1
    weight_decay: float = 0.0
    epochs: int = 300
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_fields(self, "optim.")
        for name in ("decay_every", "epochs", "batch_size"):
            check_least(f"optim.{name}", getattr(self, name), 1)
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"optim.lr: expected a rate above 0, got {self.lr}")
        if not 0 < self.lr_decay <= 1:
            raise ValueError(f"optim.lr_decay: expected a factor above 0 and up to 1, got {self.lr_decay}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"optim.weight_decay: expected 0 or more, got {self.weight_decay}")

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.lr * self.lr_decay ** (epoch // self.decay_every)

    def steps_per_epoch(self, num_items: int) -> int:
        """The number of batches of an epoch; the last one may be smaller."""
        return -(-num_items // min(self.batch_size, num_items))


@dataclass(frozen=True)
class Config:
    """A run. Make one with :func:`resolve`, which knows the paper's values.

    Attributes:
        task: ``"reconstruction"``, ``"correspondence"``, ``"classification"``, the entry point of an installed package,
            or ``module:Name``; see :class:`~geoskip.training.Task`.
        data: the name of a data set (``mixed-faces``, ``coma``, ``bodies``, ``faust``, ``superpixels``, …) or a path.
        operator: as :func:`geoskip.operators.make_operator` names it.
        skip: ``"none"``, ``"residual"``, ``"affine"`` or ``"polynomial"``.
        kernel_size: the paper's M; None for operators with one weight matrix.
        pseudo: what pseudo-coordinates are made of, positions or degrees.
        pseudo_scale: of classification, what pseudo-coordinates are divided by. ``"set"``: at each level the largest
            value of the whole data set. ``"batch"``: the largest value of each graph at the finest level, of the batch
            at the others, as in the authors' code, which recomputes them after each pooling.
        finest_pseudo: of classification by position, ``"cartesian"`` as in the paper, or ``"polar"`` at the finest
            level, as in the authors' public code.
        coarsening: of classification, how graphs are coarsened: see
            :class:`~geoskip.training.random_coarsening.Coarsening`. Empty for the levels that the data set has.
        recalibrate: of classification, whether the statistics of batch normalization (GIN) are computed again after the
            last step, as the mean over all training batches. Running averages lag behind the weights.
        options: further options of the operator.
        model: further arguments of the model: channels, latent, dropout, …; for the autoencoder also ``factors``,
            by how much each level of the hierarchy is coarser than the one before.
        data_options: further arguments of the data's loader, such as ``unit_mm`` of a folder of meshes.
        optim: see :class:`Optim`.
        init_from: the folder of a run or an exported model whose weights training starts from, for fine-tuning.
        init_sha256: the checksum of these weights. :func:`~geoskip.training.train` sets it, so that no run is resumed
            after they have changed.
        seed: of initial values, dropout and the order of the data.
        device: ``"auto"`` (CUDA where there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``.
        precision: ``"float32"``, or mixed with ``"bf16"`` or ``"fp16"``.
        tf32: whether matrix products in float32 may use TensorFloat-32 on CUDA.
        train_items: how many of the training items are used, spread evenly over the set; None for all.
        test_items: likewise for the test.
        validation: the share of the training items that is set aside, by subject where there are subjects. Evaluations
            during training use them instead of the test items, which are then evaluated once, at the end.
        test: whether the test items are evaluated at all. False is for choices that are made on the validation items.
        evaluate_every: epochs between evaluations; 0 for only one at the end. Nothing is selected by them.
        checkpoint_every: steps between checkpoints; 0 for only one at the end.
        keep: how many checkpoints are kept.
    """

    task: str
    data: str
    operator: str = "monet"
    skip: str = "none"
    kernel_size: int | None = None
    pseudo: str = "position"
    pseudo_scale: str = "set"
    finest_pseudo: str = "cartesian"
    coarsening: Mapping[str, Any] = field(default_factory=dict)
    recalibrate: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    data_options: Mapping[str, Any] = field(default_factory=dict)
    optim: Optim = field(default_factory=Optim)
    init_from: str | None = None
    init_sha256: str | None = None
    seed: int = 0
    device: str = "auto"
    precision: str = "float32"
    tf32: bool = False
    train_items: int | None = None
    test_items: int | None = None
    validation: float = 0.0
    test: bool = True
    evaluate_every: int = 0
    checkpoint_every: int = 1000
    keep: int = 2

    def __post_init__(self) -> None:
        from geoskip.blocks import NO_SKIP, find_skip
        from geoskip.training.tasks.base import find_task

        if not isinstance(self.optim, Optim):
            raise ValueError(f"optim: expected names with values, such as optim.lr=1e-4, got {self.optim!r:.200}")
        check_fields(self)
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        find_task(self.task)
        if self.skip != NO_SKIP:
            find_skip(self.skip)
        sizes = {"seed": 0, "train_items": 1, "test_items": 1, "evaluate_every": 0, "checkpoint_every": 0, "keep": 1}
        for name, least in sizes.items():
            check_least(name, getattr(self, name), least)
        if not 0 <= self.validation < 1:
            raise ValueError(
                f"validation: expected a share of the training items, 0 or more and below 1, got {self.validation}"
            )
        if not self.test and not self.validation:
            raise ValueError(
                "test: false leaves nothing to evaluate; also set validation to a share of the training items"
            )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return json.loads(json.dumps(asdict(self)))

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name, such as ``optim.lr``, as plain JSON."""
        flat: dict[str, Any] = {}
        for name, value in self.to_json().items():
            flat |= (
                {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else {name: value}
            )
        return flat

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Config:
        """What :meth:`to_json` gave; ValueError names what is unknown, missing or of the wrong kind."""
        given = dict(entries)
        for name in ("task", "data"):
            if name not in given:
                raise ValueError(f"{name}: a configuration needs one")
        if isinstance(given.get("optim"), Mapping):
            given["optim"] = Optim(**_known(given["optim"], Optim, "optim."))
        return cls(**_known(given, cls))


def resolve(task: str, **given: Any) -> Config:
    """A configuration with the task's defaults for everything that is not given or None; built-in tasks have the
    paper's values.

    ``optim`` may be a mapping of what differs.
    """
    from geoskip.operators import operator_info
    from geoskip.training.tasks.base import find_task

    settings = {key: value for key, value in _known(given, Config).items() if value is not None}
    operator = settings.get("operator", Config.operator)
    defaults = find_task(task).defaults(operator)
    if not operator_info(operator).has_kernel_size:
        defaults.pop("kernel_size", None)
    if isinstance(settings.get("optim"), Mapping):
        settings["optim"] = replace(defaults.get("optim", Optim()), **_known(settings["optim"], Optim, "optim."))
    if "data" not in {**defaults, **settings}:
        raise ValueError(f"data: {task} has no default data set; choose one with --data")
    return Config(**{"task": task, **defaults, **settings})


def override(config: Config, settings: Sequence[str]) -> Config:
    """The configuration with settings such as ``optim.lr=1e-4`` or ``model.latent=8``; values are JSON, or text.

    A mapping replaces the settings that it names and leaves the others of its group.
    """
    entries, known = config.to_json(), [*_names(Config), *(f"optim.{name}" for name in _names(Optim))]
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"{setting}: expected KEY=VALUE, such as optim.lr=1e-4")
        path, value = path.strip(), _value(text.strip())
        key, dot, inner = path.partition(".")
        if path not in known and (key not in entries or key == "optim"):
            raise ValueError(f"{path}: {unknown_name(path, known)}")
        if not dot:
            is_group = isinstance(entries[key], dict) and isinstance(value, dict)
            entries[key] = {**entries[key], **value} if is_group else value
        elif inner and isinstance(entries[key], dict):
            entries[key][inner] = value
        else:
            raise ValueError(f"{path}: {key} has no parts; set {key} itself")
    return Config.from_json(entries)


def _value(text: str) -> Any:
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    try:
        return parse_json(text)
    except ReadError:
        return text


def _names(cls: Any) -> list[str]:
    return [entry.name for entry in fields(cls)]


def _known(given: Mapping[str, Any], cls: Any, prefix: str = "") -> dict[str, Any]:
    check_names(given, _names(cls), prefix)
    return dict(given)
