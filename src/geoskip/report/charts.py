"""The charts of the page as data, and the same charts as PNG and SVG files."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from geoskip.records.files import atomic_write
from geoskip.report.palette import SERIES
from geoskip.report.runs import Metric
from geoskip.report.summary import ResultRow, ResultTable
from geoskip.shapes import Int

Point = tuple[float, float]
Coordinate = Callable[[ResultRow], float]
# Points per curve; more would not be visible.
MAX_POINTS = 240
PAPER = ", paper"


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    low, high: bounds of its spread over seeds.
    color: name of the skip that decides the color.
    mark: what decides the marker: the operator and its pseudo-coordinates, and what else tells the line apart.
    variant: the end of the method's name that decides the dashes: ``"+"``, ``"†"`` or empty.
    group: lines of one group are shown together.
    paper: whether the values are the paper's.
    """

    name: str
    points: tuple[Point, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    color: str = "other"
    mark: str = ""
    variant: str = ""
    group: str = ""
    paper: bool = False


@dataclass(frozen=True)
class Chart:
    """Axes and lines. ``kind`` is ``"curve"`` (many points) or ``"points"`` (few, each with a marker).

    name: what it shows.
    table: the title of the table whose rows it shows.
    decimals: those of its values in tables; None if no table has them.
    """

    key: str
    name: str
    text: str
    x: str
    y: str
    series: tuple[Series, ...]
    kind: str = "curve"
    log_y: bool = False
    table: str = ""
    decimals: int | None = None

    @property
    def title(self) -> str:
        return ": ".join(filter(None, (self.table, self.name.lower() if self.table else self.name)))

    @property
    def first(self) -> str:
        """The group to show first: the one with the most different skips; the last one if there are several."""
        looks: dict[str, set[str]] = {}
        for series in self.series:
            looks.setdefault(series.group, set()).add(series.color)
        return max(reversed(looks), key=lambda group: len(looks[group]), default="")

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"first": self.first, "title": self.title}


def charts(tables: Sequence[ResultTable]) -> list[Chart]:
    """For each table: training loss, cumulative geodesic error, and the main metric versus kernel size and model size.

    Every title names its table, so no two charts of a page have the same title.
    """
    # A table with no rows of its own has those of another table, and the same charts.
    drawn = [replace(chart, table=table.title) for table in tables if table.own for chart in _charts_of(table)]
    return [replace(chart, series=_distinct(chart)) for chart in drawn if chart.series]


def _distinct(chart: Chart) -> tuple[Series, ...]:
    """Lines that are shown together, and do not look alike: rows may differ in their settings alone.

    Single points have no dashes to tell MoNet+ from MoNet.
    """

    def look(series: Series) -> tuple[object, ...]:
        return series.group, series.color, series.paper, series.mark, series.variant

    series = chart.series
    if chart.kind == "points":
        series = tuple(replace(one, mark=one.mark + one.variant) for one in series)
    counts = Counter(map(look, series))
    return tuple(replace(one, mark=f"{one.mark}, {_apart(one)}") if counts[look(one)] > 1 else one for one in series)


def _apart(series: Series) -> str:
    """What the name says of the settings, or all of it: rows with other skips have other colors."""
    name = series.name.removesuffix(PAPER)
    return name.partition(", ")[2] or name


def _charts_of(table: ResultTable) -> list[Chart]:
    band = ", averaged over seeds; the band spans all seeds" if any(len(row.runs) > 1 for row in table.rows) else ""
    curves = [
        Chart(
            f"{table.key}-loss",
            "Training loss",
            f"Mean loss of each epoch{band}.",
            "Epoch",
            "Loss",
            _curves(table.rows, "loss"),
            log_y=True,
        ),
        geodesic_chart(f"{table.key}-geodesic", "Cumulative geodesic error", _curves(table.rows, "geodesic"), band),
    ]
    metric = next((m for m in table.description.metrics if m.better), None)
    return curves + (_versus(table, metric) if metric else [])


def geodesic_chart(key: str, name: str, series: tuple[Series, ...], band: str = "") -> Chart:
    """The cumulative geodesic error of the Princeton protocol. ``band``: how seeds are summarized, in words."""
    text = f"Percentage of vertices matched within a given geodesic distance{band}; higher is better."
    return Chart(key, name, text, "Geodesic error, % of the diameter", "Vertices, %", series)


def _versus(table: ResultTable, metric: Metric) -> list[Chart]:
    """The metric versus kernel size, if there are several sizes, and versus the number of parameters."""
    sized = [row for row in table.rows if row.matrices is not None]
    printed = [row for row in table.rows if metric.key in row.paper]
    bars = " Bars are 95 % confidence intervals of the mean." if any(len(row.runs) > 1 for row in table.rows) else ""
    better = f"{metric.better.capitalize()} is better.{bars} Marks at the same x stand side by side."
    drawn = []
    # The additional weight matrix of MoNet+ does not make another size.
    if len({row.group.matrices for row in sized}) > 1:
        hollow = " Hollow marks are the paper's results." if printed else ""
        drawn.append(
            Chart(
                f"{table.key}-size",
                f"{metric.heading} versus kernel size",
                f"One line per method{_powers(sized)}. {better}{hollow}",
                "Weight matrices M",
                metric.label,
                _lines(table, sized, metric, lambda row: float(row.matrices or 0)),
                "points",
                decimals=metric.digits,
            )
        )
    if len({row.parameters for row in table.rows}) > 1:
        hollow = f" Hollow marks are the paper's results, {_whose_counts(printed)}." if printed else ""
        drawn.append(
            Chart(
                f"{table.key}-parameters",
                f"{metric.heading} versus model size",
                f"{better}{hollow}",
                "Parameters",
                metric.label,
                _lines(table, table.rows, metric, lambda row: float(row.parameters), _paper_count),
                "points",
                decimals=metric.digits,
            )
        )
    # Variants of a method with other settings have the same size: there is nothing to see.
    return [chart for chart in drawn if all(len({x for x, _ in s.points}) == len(s.points) for s in chart.series)]


def _paper_count(row: ResultRow) -> float:
    return float(row.parameters if row.paper_parameters is None else row.paper_parameters)


def _whose_counts(rows: Sequence[ResultRow]) -> str:
    """At whose parameter counts the paper's marks are drawn."""
    known = [row.paper_parameters is not None for row in rows]
    if all(known):
        return "at its own parameter counts"
    return "at its own parameter counts where known, otherwise at ours" if any(known) else "at our parameter counts"


def _powers(rows: Sequence[ResultRow]) -> str:
    """Explains M for an operator with several control values per dimension: SplineCNN."""
    row = next((row for row in rows if row.matrices != row.kernel_size), None)
    if row is None or row.matrices is None or row.kernel_size is None:
        return ""
    dim = round(math.log(row.matrices, row.kernel_size))
    return f"; {row.family} with m control values per dimension has M = m{'' if dim == 1 else '⁰¹²³⁴'[dim]}"


def _lines(
    table: ResultTable, rows: Sequence[ResultRow], metric: Metric, x: Coordinate, paper_x: Coordinate | None = None
) -> tuple[Series, ...]:
    """One line per method, and one for its results in the paper."""
    methods: dict[tuple[str, str, tuple[str, ...]], list[ResultRow]] = {}
    for row in rows:
        methods.setdefault((row.method, table.pseudo(row), row.group.details), []).append(row)
    ours, paper = [], []
    for (method, pseudo, details), members in methods.items():
        suffixes = [pseudo, *details]
        if method.endswith("†"):  # which already says that there are no self-loops
            suffixes = [members[0].group.variant]
        name = " ".join([method, *(f"({text})" for text in suffixes if text)])
        look = _look(members[0], members[0].family)
        measured = sorted((row for row in members if metric.key in row.metrics), key=x)
        values = [row.metrics[metric.key] for row in measured]
        points = tuple((x(row), value.mean) for row, value in zip(measured, values, strict=True))
        low = tuple(value.mean - (value.half or 0.0) for value in values)
        high = tuple(value.mean + (value.half or 0.0) for value in values)
        ours.append(Series(name, points, low, high, **look))
        published = sorted(((paper_x or x)(row), row.paper[metric.key]) for row in members if metric.key in row.paper)
        paper.append(Series(f"{name}{PAPER}", tuple(published), paper=True, **look))
    return tuple(series for series in ours + paper if series.points)


def _curves(rows: Sequence[ResultRow], name: str) -> tuple[Series, ...]:
    curves = [_curve(row, name) for row in rows if any(run.record.curves.get(name) for run in row.runs)]
    # A single epoch is not a curve.
    return tuple(series for series in curves if len(series.points) > 1)


def _curve(row: ResultRow, name: str) -> Series:
    """Mean, minimum and maximum over seeds, at every x that all seeds have."""
    curves = [dict(run.record.curves[name]) for run in row.runs if run.record.curves.get(name)]
    shared = sorted(set.intersection(*map(set, curves)))
    stride = max(1, -(-len(shared) // MAX_POINTS))
    kept = shared[::stride] + (shared[-1:] if (len(shared) - 1) % stride else [])
    values = [[curve[x] for curve in curves] for x in kept]
    points = tuple((float(x), statistics.fmean(at)) for x, at in zip(kept, values, strict=True))
    low, high = tuple(map(min, values)), tuple(map(max, values))
    several = len(curves) > 1
    look = _look(row, ", ".join(filter(None, (row.family, row.size))))
    return Series(row.label, points, low if several else (), high if several else (), **look)


def _look(row: ResultRow, group: str) -> dict[str, Any]:
    variant = "†" if row.method.endswith("†") else "+" * row.larger
    return {"color": row.look, "mark": f"{row.group.operator}, {row.group.pseudo}", "variant": variant, "group": group}


# In inches.
WIDTH = 6.4
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES: dict[str, Any] = {"": "-", "+": (0, (6, 3)), "†": (0, (1.5, 2.5))}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e3e0d8",
    "axes.titlelocation": "left",
    "svg.hashsalt": "geoskip",
    "svg.fonttype": "none",
}


def write_charts(charts: Sequence[Chart], folder: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write each chart as ``KEY.png`` and ``KEY.svg``. Equal charts give equal files."""

    def draw(figure: Any, axes: Any, chart: Chart) -> None:
        marks = list(dict.fromkeys(series.mark for series in chart.series))
        marked = chart.kind == "points" or len(marks) > 1
        for series, x in zip(chart.series, _places(chart), strict=True):
            _draw_series(axes, chart, series, x, MARKERS[marks.index(series.mark) % len(MARKERS)] if marked else "")
        # Matplotlib would read text between dollar signs as mathematics.
        axes.set(xlabel=_escaped(chart.x), ylabel=_escaped(chart.y))
        axes.set_title(_escaped("\n".join(filter(None, (chart.name, chart.table)))), fontsize=9)
        if chart.log_y:
            axes.set_yscale("log")
        if all(float(x).is_integer() for series in chart.series for x, _ in series.points):  # epochs, kernel sizes
            axes.xaxis.get_major_locator().set_params(integer=True)
        if len(chart.series) > 1:
            figure.legend(loc="outside lower left", fontsize=7, frameon=False, ncols=_legend_columns(chart))

    paths = []
    for chart in charts:
        files = [folder / f"{chart.key}.{kind}" for kind in kinds]
        height = 4.0 + 0.15 * -(-len(chart.series) // _legend_columns(chart))
        paths += write_figure(files, (WIDTH, height), partial(draw, chart=chart), dpi=200)
    return paths


def _legend_columns(chart: Chart) -> int:
    """As many as fit: a name in 7 points has about 0.055 inches per letter, and its line 0.45."""
    return max(1, int(WIDTH / (0.45 + 0.055 * max(len(series.name) for series in chart.series))))


def _places(chart: Chart) -> list[list[float]]:
    """Places on the x axis such that no mark hides another or its interval; the page does the same."""
    places = [[x for x, _ in series.points] for series in chart.series]
    if chart.kind != "points":
        return places
    marks = sorted((x, n, i) for n, xs in enumerate(places) for i, x in enumerate(xs))
    width = (marks[-1][0] - marks[0][0]) or 1.0
    begin = 0
    for end in range(1, len(marks) + 1):
        if end < len(marks) and marks[end][0] - marks[end - 1][0] < 0.015 * width:
            continue
        step, middle = min(0.022, 0.14 / (end - begin)) * width, (marks[begin][0] + marks[end - 1][0]) / 2
        for k, (_, n, i) in enumerate(marks[begin:end]):
            places[n][i] = middle + (k - (end - begin - 1) / 2) * step
        begin = end
    return places


def _draw_series(axes: Any, chart: Chart, series: Series, x: Sequence[float], marker: str) -> None:
    color = SERIES[series.color][0]
    y = [value for _, value in series.points]
    points = chart.kind == "points"
    axes.plot(
        x,
        y,
        color=color,
        label=_escaped(series.name),
        linestyle=":" if series.paper else DASHES[series.variant],
        linewidth=0.9 if series.paper else 1.6,
        marker=marker,
        markevery=1 if points else max(1, len(x) // 6),
        markersize=5,
        markerfacecolor="white" if series.paper else color,
    )
    if points and series.low and series.high != series.low:
        axes.vlines(x, series.low, series.high, color=color, linewidth=1.1)
    elif series.low:
        axes.fill_between(x, series.low, series.high, color=color, alpha=0.16, linewidth=0)


def draw_confusion(path: Path, counts: Int[np.ndarray, "classes classes"], class_names: Sequence[str] = ()) -> Path:
    """Rows are true classes, columns are predicted classes; shades show shares of the row, numbers are counts."""
    classes = len(counts)
    names = list(class_names) or [str(number) for number in range(classes)]
    side = min(2.4 + 0.45 * classes, 16)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def draw(_: Any, axes: Any) -> None:
        axes.grid(False)
        axes.imshow(shares, cmap="Reds", vmin=0, vmax=1)
        axes.set(xlabel="predicted", ylabel="true")
        axes.set_xticks(range(classes), names, rotation=45 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(classes), names)
        for (row, column), count in np.ndenumerate(counts if classes <= 20 else counts[:0]):
            shade = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=shade, fontsize=7)

    return write_figure([path], (side, side), draw)[0]


def write_figure(
    paths: Sequence[Path], inches: tuple[float, float], draw: Callable[[Any, Any], None], dpi: int = 150
) -> list[Path]:
    """Call ``draw(figure, axes)`` with matplotlib's objects and write the figure to ``paths``, by their suffixes."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'geoskip[plots]'") from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(inches, layout="constrained")
        draw(figure, figure.subplots())
        for path in paths:
            buffer = BytesIO()
            # A date would make equal figures differ.
            metadata = {"Date": None} if path.suffix == ".svg" else {}
            figure.savefig(buffer, format=path.suffix[1:], dpi=dpi, metadata=metadata)
            atomic_write(path, buffer.getvalue())
    return list(paths)


def _escaped(text: str) -> str:
    return text.replace("$", r"\$")
