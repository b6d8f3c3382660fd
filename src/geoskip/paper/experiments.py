"""The paper's tables and figures as experiments: the rows that each one needs.

A row that several tables show is trained once: each row belongs to one experiment, its home, and others refer to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from geoskip.paper.rows import TINY, PaperRow, paper, printed_row, table_rows


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
                labels = [row.label for row in self.rows]
                near = get_close_matches(pattern, labels, n=3) or labels[:3]
                raise ValueError(
                    f"rows: none of the {len(labels)} rows of {self.name} matches {pattern!r}; labels are such as "
                    f"{', '.join(near)}"
                )
        return tuple(row for row in self.rows if not patterns or any(_matches(row, each) for each in patterns))


def _matches(row: PaperRow, pattern: str) -> bool:
    names = (row.label, row.line, row.title, row.method)
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names)


# Superpixels are coarsened as in the authors' public code, and MoNet starts with its initial values. The public code
# has polar coordinates at the finest level; the paper says Cartesian, and the recipe follows the paper.
AUTHORS = {
    "coarsening.matchings": "1",
    "coarsening.drawn": "epoch",
    "coarsening.weight": "far",
    "pseudo_scale": "batch",
    "options.init": "authors",
}
# Settings that change nothing for most rows, and the operators (and pseudo-coordinates) for which they do.
ONLY_FOR = {
    "pseudo_scale": ("monet",),
    "options.init": ("monet",),
    "finest_pseudo": ("monet", "position"),
    "recalibrate": ("gin",),
    "options.renormalize": ("gcn",),
}


def _settings(row: PaperRow, chosen: Mapping[str, str | None]) -> tuple[str, ...]:
    """The settings that matter for a row, as a configuration takes them; None stands for the default."""
    matter = {name for name in chosen if set(ONLY_FOR.get(name, ())) <= {row.operator, row.pseudo}}
    return tuple(f"{name}={value}" for name, value in chosen.items() if value is not None and name in matter)


def _with_recipe(rows: Iterable[PaperRow]) -> tuple[PaperRow, ...]:
    return tuple(replace(row, settings=_settings(row, AUTHORS)) for row in rows)


TABLE1 = Experiment("table1", "Shape reconstruction (Table 1)", table_rows("table1", "reconstruction"))
TABLE2 = Experiment("table2", "Superpixel MNIST (Table 2)", _with_recipe(table_rows("table2", "classification")))
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


def _without_loops(pair: tuple[PaperRow, ...]) -> Iterator[PaperRow]:
    """Self-loops have no parameters, so the count is the same without them."""
    for row in pair:
        method = f"{row.method}†"
        figures = paper()["table3"][row.task][method] | {"params": row.figures["params"]}
        yield printed_row("table3", row.task, row.column or 0, method, figures)


FACES_PAIR = TABLE1.select([f"{method} M=9" for method in FEAST_PAIR])
DIGITS_PAIR = TABLE2.select(FEAST_PAIR)
DIGITS_WITHOUT_LOOPS = _with_recipe(_without_loops(DIGITS_PAIR))
TABLE3 = Experiment(
    "table3",
    "Self-loops or affine skips (Table 3)",
    (
        *(*FACES_PAIR, *_without_loops(FACES_PAIR)),
        *CORRESPONDENCE.select([*FEAST_PAIR, *(f"{method}†" for method in FEAST_PAIR)]),
        *(*DIGITS_PAIR, *DIGITS_WITHOUT_LOOPS),
    ),
)
SUPERPIXELS = Experiment("superpixels", "Superpixel MNIST (Tables 2 and 3)", (*TABLE2.rows, *DIGITS_WITHOUT_LOOPS))

# Ablations hold out a tenth of the training items, and compare rows on them: the test set is not used.
VALIDATED = {"validation": "0.1", "test": "false"}


def _variants(
    home: str, rows: Sequence[PaperRow], base: Mapping[str, str], variants: Mapping[str, Mapping[str, str | None]]
) -> tuple[PaperRow, ...]:
    """Each row with the settings of each variant in place of those of ``base``; not where that changes nothing."""
    changed: dict[tuple[str, tuple[str, ...]], PaperRow] = {}
    for variant, changes in variants.items():
        for row in rows:
            settings = _settings(row, {**base, **changes})
            changed.setdefault((row.label, settings), replace(row, home=home, variant=variant, settings=settings))
    return tuple(changed.values())


# "stored levels" is the recipe of the short schedule, which differs in all settings.
RECIPE = {**AUTHORS, **VALIDATED, "evaluate_every": "5"}
SUPERPIXEL_ABLATION = Experiment(
    "superpixel_ablation",
    "Superpixels: differences from the authors' code (validation accuracy, %)",
    (
        *_variants(
            "superpixel_ablation",
            [TABLE2.select([title])[0] for title in ("MoNet (position)", "MoNet (degree)", "GCN", "Aff-GCN")],
            RECIPE,
            {
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
            },
        ),
        *_variants(
            "superpixel_ablation",
            TABLE2.select(["GIN-0"]),
            RECIPE,
            {"authors' recipe": {}, "statistics of all training batches": {"recalibrate": "true"}},
        ),
    ),
)
# The paper prints two forms of GCN's matrix, and the authors' public code has an ELU that the appendix does not have.
FORMS: dict[str, dict[str, str | None]] = {
    "as in the appendix": {},
    "ELU after Lin(256)": {"model.head_elu": "true"},
    "I + D^-1/2 A D^-1/2": {"options.renormalize": "false"},
}
# The same code has a rate of 0.003. The paper does not say in which unit positions are; the public code has meters.
STEPS: dict[str, dict[str, str | None]] = {
    "positions in decimeters": {"model.input_scale": "10"},
    "rate 0.003": {"optim.lr": "0.003"},
}
GCN_ROWS = CORRESPONDENCE.select(["GCN", "Res-GCN", "Aff-GCN"])
MATCHING_RECIPE = {**VALIDATED, "evaluate_every": "50"}
CORRESPONDENCE_ABLATION = Experiment(
    "correspondence_ablation",
    "Shape correspondence: forms of GCN and of the network (validation accuracy, %)",
    (
        *_variants("correspondence_ablation", CORRESPONDENCE.rows, MATCHING_RECIPE, FORMS),
        *_variants("correspondence_ablation", GCN_ROWS, MATCHING_RECIPE, STEPS),
    ),
)
# Small enough for a CPU.
GCN_ABLATION = Experiment(
    "gcn_ablation",
    "Shape correspondence of 689 vertices: forms of GCN and of the network (validation accuracy, %)",
    _variants(
        "gcn_ablation",
        GCN_ROWS,
        {**MATCHING_RECIPE, "data_options.num_vertices": "689"},
        {**FORMS, **STEPS},
    ),
)

KEY_FACES = ("MoNet M=9", "Res-MoNet M=9", "Aff-MoNet M=9", "SpiralNet++ M=9")
# The paper has no such table, so its figures do not stand next to these. mouth_extreme moves the face most.
EXTRAPOLATION = Experiment(
    "extrapolation",
    "Faces that are unlike those of the training",
    _variants(
        "extrapolation",
        [replace(row, figures={"params": row.figures["params"]}) for row in TABLE1.select(KEY_FACES)],
        {},
        {
            "people never seen": {"data_options.split": "people"},
            "an expression never seen": {"data_options.split": "mouth_extreme"},
        },
    ),
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
        *(CENTER_ABLATION, SPLINE_SUPPLEMENT, SUPERPIXELS, SUPERPIXEL_ABLATION, CORRESPONDENCE_ABLATION, GCN_ABLATION),
        EXTRAPOLATION,
        *FIGURES,
    )
}


@dataclass(frozen=True)
class Part:
    """A part of the runs behind ``docs/results.md``: rows of an experiment, on one data set, trained in one way.

    rows: patterns, as for :meth:`Experiment.select`; all rows if there are none.
    """

    experiment: str
    data: str
    schedule: str
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)


SEEDS = (0, 1, 2)
KEY_DIGITS = ("MoNet (position)", "Aff-MoNet (degree)", "GCN", "Aff-GCN")
MOVING = ("MoNet M=9", "FeaStNet M=9", "SpiralNet++ M=9", "ChebNet M=9")
# ``geoskip reproduce all``, in this order: first what is done, then what says most per minute of a GPU.
EVIDENCE = (
    Part("table1", "mixed-faces", "in60", ("*M=9",), SEEDS),
    Part("table3", "mixed-faces", "in60", ("FeaStNet† M=9", "Aff-FeaStNet† M=9"), SEEDS),
    Part("table1", "moving-bodies", "in60", MOVING, SEEDS),
    Part("superpixels", "superpixels", "first200", (), SEEDS),
    Part("extrapolation", "mixed-faces", "in60"),
    Part("superpixels", "superpixels", "full", KEY_DIGITS),
    Part("superpixel_ablation", "superpixels", "first100"),
    Part("table1", "mixed-faces", "full", KEY_FACES),
    Part("correspondence", "remeshed-bodies", "first300", (), SEEDS),
    Part("gcn_ablation", "bodies", "first60", (), SEEDS),
    Part("correspondence_ablation", "bodies", "first300"),
    Part("correspondence", "bodies", "first300", (), SEEDS),
    Part("correspondence_ablation", "remeshed-bodies", "first300"),
    Part("table1", "mixed-faces", "in60", ("*M=4", "*M=14")),
    Part("table1", "faces", "full", KEY_FACES),
)


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


def is_comparable(data: str) -> bool:
    """Whether the paper's figures may stand next to those on a data set; one that is not built in is not imported."""
    from geoskip.data.catalog import BUILT_IN

    return data not in BUILT_IN or BUILT_IN[data].comparable


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
