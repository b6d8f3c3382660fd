"""The paper's tables and figures as experiments: the rows that each one needs.

A row that several tables show is trained once: each row belongs to one experiment, its home, and others refer to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from geoskip.paper.rows import NO_TEST, TINY, PaperRow, paper, printed_row, table_rows


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    figure: what to draw from the samples of the runs: ``"errors"``, ``"reconstructions"`` or ``"affine"``.
    """

    name: str
    title: str
    rows: tuple[PaperRow, ...]
    figure: str = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.task for row in self.rows))

    def select(self, patterns: Sequence[str] = ()) -> tuple[PaperRow, ...]:
        """The rows whose label or method matches one of the patterns, such as ``Aff-*``; all if there are none."""
        for pattern in patterns:
            if not any(_matches(row, pattern) for row in self.rows):
                labels = ", ".join(row.label for row in self.rows)
                raise ValueError(f"rows: {self.name} has none like {pattern!r}; it has {labels}")
        return tuple(row for row in self.rows if not patterns or any(_matches(row, each) for each in patterns))


def _matches(row: PaperRow, pattern: str) -> bool:
    names = (row.label, row.line, row.title, row.method)
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names)


TABLE1 = Experiment("table1", "Shape reconstruction (Table 1)", table_rows("table1", "reconstruction"))
TABLE2 = Experiment("table2", "Superpixel MNIST (Table 2)", table_rows("table2", "classification"))
CORRESPONDENCE = Experiment(
    "correspondence", "Shape correspondence (curves and text)", table_rows("correspondence", "correspondence")
)
# m = 1 … 5 control values per dimension give SplineCNN M = m³ matrices; MoNet has M = 8.
SPLINE_SUPPLEMENT = Experiment(
    "spline_supplement", "SplineCNN (supplement)", table_rows("spline_supplement", "reconstruction")
)
# The paper's text compares kernel size 9; Table 1, whose first rows these are, has all three.
CENTER_METHODS = ("ChebNet†", "ChebNet", "SpiralNet++†", "SpiralNet++")
CENTER_ABLATION = Experiment(
    "center_ablation",
    "A weight for the center vertex (ablation, first rows of Table 1)",
    TABLE1.select(CENTER_METHODS),
)

# Table 3: FeaStNet with and without self-loops (†), with and without affine skips, on three tasks. Most of its rows are
# rows of other tables. Those without self-loops on reconstruction and classification are its own.
FEAST_PAIR = ("FeaStNet", "Aff-FeaStNet")


def _with_and_without_loops(pair: tuple[PaperRow, ...]) -> tuple[PaperRow, ...]:
    """Self-loops have no parameters, so the count is the same without them."""
    without = []
    for row in pair:
        method = f"{row.method}†"
        figures = paper()["table3"][row.task][method] | {"params": row.figures["params"]}
        without.append(printed_row("table3", row.task, row.column or 0, method, figures))
    return (*pair, *without)


TABLE3 = Experiment(
    "table3",
    "Self-loops or affine skips (Table 3)",
    (
        *_with_and_without_loops(TABLE1.select([f"{method} M=9" for method in FEAST_PAIR])),
        *CORRESPONDENCE.select([*FEAST_PAIR, *(f"{method}†" for method in FEAST_PAIR)]),
        *_with_and_without_loops(TABLE2.select(FEAST_PAIR)),
    ),
)

# Superpixels: the recipe of the authors' public code, and variants that differ from it in one setting each. A tenth of
# the training set is held out, and rows are compared on it: the test set is not used. "stored levels" is the earlier
# recipe, which differs in all settings. The public code has polar coordinates at the finest level; the paper says
# Cartesian, and the recipe follows the paper.
VALIDATED = ("validation=0.1", NO_TEST, "evaluate_every=5")
AUTHORS = {
    "coarsening.matchings": "1",
    "coarsening.drawn": "epoch",
    "coarsening.weight": "far",
    "pseudo_scale": "batch",
    "options.init": "authors",
}
# The settings of a variant replace the authors'; None removes one.
VARIANTS: dict[str, dict[str, str | None]] = {
    "authors' recipe": {},
    "two matchings per pooling": {"coarsening.matchings": "2"},
    "one coarsening for all epochs": {"coarsening.drawn": "frozen"},
    "near neighbors first": {"coarsening.weight": "near"},
    "one scale for the whole set": {"pseudo_scale": None},
    "initial values of the paper": {"options.init": None},
    "polar coordinates at the finest level": {"finest_pseudo": "polar"},
    "mean pooling": {"model.pooling": "mean"},
    "compactness 0.1": {"data_options.compactness": "0.1"},
    "compactness 1": {"data_options.compactness": "1.0"},
    "8 neighbors on average": {"data_options.degree": "8.0"},
    "stored levels": dict.fromkeys(AUTHORS),
}
# Settings without effect on other operators, and on other pseudo-coordinates.
MONET_SETTINGS = ("pseudo_scale", "options.init")
POSITION_SETTINGS = ("finest_pseudo",)


def _ablation_rows() -> tuple[PaperRow, ...]:
    methods = [TABLE2.select([title])[0] for title in ("MoNet (position)", "MoNet (degree)", "GCN", "Aff-GCN")]
    rows: dict[tuple[str, tuple[str, ...]], PaperRow] = {}
    for variant, changes in VARIANTS.items():
        for row in methods:
            settings = _variant_settings(row, changes)
            # A variant that changes nothing for a method needs no training.
            changed = replace(row, home="superpixel_ablation", variant=variant, settings=settings)
            rows.setdefault((row.title, settings), changed)
    return tuple(rows.values())


def _variant_settings(row: PaperRow, changes: Mapping[str, str | None]) -> tuple[str, ...]:
    without_effect = (
        *(() if row.operator == "monet" else MONET_SETTINGS),
        *(() if row.pseudo == "position" else POSITION_SETTINGS),
    )
    chosen = {**AUTHORS, **changes}
    kept = [f"{name}={value}" for name, value in chosen.items() if value is not None and name not in without_effect]
    return (*kept, *VALIDATED)


SUPERPIXEL_ABLATION = Experiment(
    "superpixel_ablation",
    "Superpixels: differences from the authors' code (validation accuracy, %)",
    _ablation_rows(),
)

# The figures that show meshes. They need no training of their own: their runs are those of Table 1 and of the
# correspondence. Colors saturate at 5 mm for reconstructions, at 10 % of the geodesic diameter for correspondences.
SHOWN = ("FeaStNet", "Aff-FeaStNet", "MoNet", "Aff-MoNet")


def _faces(methods: Sequence[str], size: int) -> tuple[PaperRow, ...]:
    return TABLE1.select([f"{method} M={size}" for method in methods])


FIGURES = (
    Experiment(
        "error_maps",
        "Error at each vertex of reconstructions (supplement)",
        _faces((*SHOWN, *CENTER_METHODS), 14),
        "errors",
    ),
    Experiment(
        "matching_maps",
        "Geodesic error at each vertex (figure of GCN, supplement)",
        CORRESPONDENCE.select((*SHOWN, "GCN", "Res-GCN", "Aff-GCN")),
        "errors",
    ),
    Experiment(
        "reconstructions",
        "Sample reconstructions: addition and ablation",
        _faces((*SHOWN, *CENTER_METHODS), 9),
        "reconstructions",
    ),
    # The paper does not say which M its figure has.
    Experiment("affine_only", "Decoding through the affine skips only", _faces(("Aff-MoNet",), 9), "affine"),
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(TABLE1, TABLE2, TABLE3, CORRESPONDENCE),
        *(CENTER_ABLATION, SPLINE_SUPPLEMENT, SUPERPIXEL_ABLATION),
        *FIGURES,
    )
}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment: unknown name {name!r}; choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def find_row(home: str, label: str) -> PaperRow:
    """A row by the experiment that it belongs to and its label."""
    for row in find_experiment(home).rows:
        if (row.home, row.label) == (home, label):
            return row
    raise ValueError(f"row: {home} has no row {label!r} of its own")


def all_rows() -> tuple[PaperRow, ...]:
    """The rows of Tables 1 and 2 and of the correspondence, whose parameters the paper gives."""
    return (*TABLE1.rows, *TABLE2.rows, *CORRESPONDENCE.rows)


def chosen_data(tasks: Sequence[str], named: Sequence[str] = (), schedule: str = "full") -> Mapping[str, str]:
    """The data set of each task: those ``named``, otherwise the task's default; tiny sets for the smoke schedule.

    Each name belongs to one task; ``tiny`` applies to all of them.
    """
    from geoskip.data import find_data_set
    from geoskip.training.config import resolve

    if schedule == "smoke" or TINY in named:
        chosen = dict.fromkeys(tasks, TINY)
    else:
        chosen = {task: resolve(task).data for task in tasks}
    for name in named:
        if name != TINY:
            task = find_data_set(name).task
            if task not in tasks:
                raise ValueError(f"data: {name} is for {task}; this experiment is about {', '.join(tasks)}")
            chosen[task] = name
    return chosen
