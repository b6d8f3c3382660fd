"""The configuration of a run: every choice that its result depends on, with the paper's values as defaults."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from inspect import isclass
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

from geoskip.records.reading import ReadError, parse_json
from geoskip.registry import unknown_name

KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "int | None": ((int, type(None)), "a whole number or none"),
    "float": ((float, int), "a number"),
    "bool | None": ((bool, type(None)), "true, false or none"),
    "Sequence[int]": ((list, tuple), "whole numbers, such as [32,64]"),
    "Mapping[str, Any]": ((Mapping,), "names with values"),
    "Optim": ((object,), "names with values"),
}


def check_types(record: Any, prefix: str = "") -> None:
    for entry in fields(record):
        check_type(f"{prefix}{entry.name}", getattr(record, entry.name), str(entry.type))


def check_type(name: str, value: Any, kind: str) -> None:
    """ValueError unless the value is of a kind, one of ``KINDS``, as annotations write it."""
    types, said = KINDS[kind]
    fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not fits or (kind == "Sequence[int]" and any(type(entry) is not int for entry in value)):
        raise ValueError(f"{name}: expected {said}, got {value!r:.200}")


def at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name}: expected {least} or more, got {value}")


WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", types.NoneType: "none"}


def check_arguments(function: Any, given: Mapping[str, Any], prefix: str = "") -> None:
    """ValueError, naming the argument, unless every value fits the annotation of the parameter of its name.

    ``function`` may be a class: then its constructor counts.
    """
    hints = get_type_hints(function.__init__ if isclass(function) else function)
    for name, value in given.items():
        if name in hints and not fits(value, hints[name]):
            raise ValueError(f"{prefix}{name}: expected {described(hints[name])}, got {value!r:.200}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a kind; lists count as tuples, which JSON does not have."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is tuple:
        kinds = (inner[0],) * len(value) if inner[1:] == (...,) and isinstance(value, list | tuple) else inner
        return isinstance(value, list | tuple) and len(value) == len(kinds) and all(map(fits, value, kinds))
    if origin is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str) and all(fits(one, inner[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def described(hint: Any) -> str:
    """A kind in words: ``a list of texts or none``."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(one) for one in inner))
    if origin in (tuple, Sequence):
        return f"a list of {described(inner[0]).removeprefix('a ')}s"
    return WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")


TASKS = ("reconstruction", "correspondence", "classification")
PSEUDO = ("position", "degree")
PSEUDO_SCALES = ("set", "batch")
FINEST_PSEUDO = ("cartesian", "polar")
PRECISIONS = ("float32", "bf16", "fp16")


@dataclass(frozen=True)
class Optim:
    """Adam and how long it runs: after every ``decay_every`` epochs the rate is multiplied by ``lr_decay``.

    ``batch`` is the number of items of a step over all processes together.
    """

    lr: float = 1e-3
    lr_decay: float = 0.99
    decay_every: int = 1
    weight_decay: float = 0.0
    epochs: int = 300
    batch: int = 32

    def __post_init__(self) -> None:
        check_types(self, "optim.")
        for name in ("decay_every", "epochs", "batch"):
            at_least(f"optim.{name}", getattr(self, name), 1)
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"optim.lr: expected a rate above 0, got {self.lr}")
        if not 0 < self.lr_decay <= 1:
            raise ValueError(f"optim.lr_decay: expected a factor above 0 and up to 1, got {self.lr_decay}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"optim.weight_decay: expected 0 or more, got {self.weight_decay}")

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.lr * self.lr_decay ** (epoch // self.decay_every)


@dataclass(frozen=True)
class Config:
    """A run. Make one with :func:`resolve`, which knows the paper's values.

    Attributes:
        task: ``"reconstruction"``, ``"correspondence"`` or ``"classification"``.
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
            :class:`~geoskip.training.packed.drawing.Coarsening`. Empty for the levels that the data set has.
        options: further options of the operator.
        model: further arguments of the model: channels, latent, dropout, …; for the autoencoder also ``factors``,
            by how much each level of the hierarchy is coarser than the one before.
        data_options: further arguments of the data's loader, such as ``unit_mm`` of a folder of meshes.
        optim: see :class:`Optim`.
        seed: of initial values, dropout and the order of the data.
        device: ``"auto"`` (CUDA where there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        precision: ``"float32"``, or mixed with ``"bf16"`` or ``"fp16"``.
        tf32: whether matrix products in float32 may use TensorFloat-32 on CUDA.
        train_items: how many of the training items are used, spread evenly over the set; None for all.
        test_items: likewise for the test.
        validation: the share of the training items that is set aside, by subject where there are subjects. Evaluations
            during training use them instead of the test items, which are then evaluated once, at the end.
        test: whether the test items are evaluated at all. False is for choices that are made on the validation items.
        evaluate_every: epochs between evaluations; 0 for one at the end alone. Nothing is chosen by them.
        checkpoint_every: steps between checkpoints; 0 for one at the end alone.
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
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    data_options: Mapping[str, Any] = field(default_factory=dict)
    optim: Optim = field(default_factory=Optim)
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
        check_types(self)
        if not isinstance(self.optim, Optim):
            raise ValueError(f"optim: expected names with values, such as optim.lr=1e-4, got {self.optim!r:.200}")
        chosen = {
            "task": TASKS,
            "pseudo": PSEUDO,
            "pseudo_scale": PSEUDO_SCALES,
            "finest_pseudo": FINEST_PSEUDO,
            "precision": PRECISIONS,
        }
        for name, choices in chosen.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: {unknown_name(getattr(self, name), choices)}")
        _check_skip(self.skip)
        sizes = {"seed": 0, "train_items": 1, "test_items": 1, "evaluate_every": 0, "checkpoint_every": 0, "keep": 1}
        for name, least in sizes.items():
            at_least(name, getattr(self, name), least)
        if not 0 <= self.validation < 1:
            raise ValueError(
                f"validation: expected a share of the training items, 0 or more and below 1, got {self.validation}"
            )
        if not self.test and not self.validation:
            raise ValueError("test: false leaves nothing to evaluate; set validation, such as validation=0.1")

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return json.loads(json.dumps(asdict(self)))

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


PAPER: dict[str, dict[str, Any]] = {
    "reconstruction": {"data": "faces", "kernel_size": 9, "optim": Optim()},
    "correspondence": {"data": "bodies", "kernel_size": 10, "optim": Optim(epochs=1000, batch=1)},
    "classification": {
        "data": "superpixels",
        "kernel_size": 25,
        "optim": Optim(lr_decay=0.5, decay_every=30, weight_decay=1e-4, epochs=500, batch=64),
    },
}


def resolve(task: str, **given: Any) -> Config:
    """A configuration with the paper's values for everything that is not given or None.

    ``optim`` may be a mapping of what differs. The paper trains FeaStNet on correspondence with rates of its own.
    """
    if task not in PAPER:
        raise ValueError(f"task: {unknown_name(task, TASKS)}")
    known = {key: value for key, value in _known(given, Config).items() if value is not None}
    operator = known.get("operator", "monet")
    defaults = dict(PAPER[task])
    if not _has_kernel_size(operator):
        del defaults["kernel_size"]
    if task == "correspondence" and operator == "feast":
        defaults["optim"] = replace(defaults["optim"], lr=0.01, lr_decay=0.5, decay_every=100)
    if isinstance(known.get("optim"), Mapping):
        known["optim"] = replace(defaults["optim"], **_known(known["optim"], Optim, "optim."))
    return Config(**({"task": task} | defaults | known))


def _has_kernel_size(operator: Any) -> bool:
    from geoskip.operators import operator_info

    return operator_info(operator).has_kernel_size


def _check_skip(skip: str) -> None:
    from geoskip.blocks import NO_SKIP, find_skip

    if skip != NO_SKIP:
        find_skip(skip)


def override(config: Config, settings: Sequence[str]) -> Config:
    """The configuration with settings such as ``optim.lr=1e-4`` or ``model.latent=8``; values are JSON, or text."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting}: settings read KEY=VALUE, such as optim.lr=1e-4")
        config = _with(config, path.strip(), _value(text.strip()))
    return config


def _with(config: Config, path: str, value: Any) -> Config:
    key, dot, inner = path.partition(".")
    if key not in _names(Config):
        raise ValueError(f"{path}: {unknown_name(path, _settable())}")
    if not dot:
        changed: dict[str, Any] = {key: value}
        return replace(config, **changed)
    current = getattr(config, key)
    if isinstance(current, Optim):
        if inner not in _names(Optim):
            raise ValueError(f"{path}: {unknown_name(path, _settable())}")
        whole = isinstance(value, int) and not isinstance(value, bool)
        known: Any = float(value) if whole and isinstance(getattr(current, inner), float) else value
        return replace(config, optim=replace(current, **{inner: known}))
    if not isinstance(current, Mapping) or not inner:
        raise ValueError(f"{path}: {key} has no parts; set {key} itself")
    changed = {key: {**current, inner: value}}
    return replace(config, **changed)


def _value(text: str) -> Any:
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    try:
        return parse_json(text)
    except ReadError:
        return text


def _names(cls: Any) -> list[str]:
    return [entry.name for entry in fields(cls)]


def _settable() -> list[str]:
    return [*_names(Config), *(f"optim.{name}" for name in _names(Optim))]


def _known(given: Mapping[str, Any], cls: Any, prefix: str = "") -> dict[str, Any]:
    for key in given:
        if key not in _names(cls):
            raise ValueError(f"{prefix}{key}: {unknown_name(key, _names(cls))}")
    return dict(given)
