"""The charts of the page as data, and the same charts as PNG and SVG files."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from geoskip.records.files import atomic_write
from geoskip.report.palette import SERIES
from geoskip.report.summary import Metric, ResultRow, ResultTable

Point = tuple[float, float]
Coordinate = Callable[[ResultRow], float]
# Points per curve; more would not be visible.
MAX_POINTS = 240


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    low, high: bounds of its spread over seeds.
    color: name of the skip that decides the color.
    mark: name of the operator that decides the marker.
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
    """Axes and lines. ``kind`` is ``"curve"`` (many points) or ``"points"`` (few, each with a marker)."""

    key: str
    title: str
    text: str
    x: str
    y: str
    series: tuple[Series, ...]
    kind: str = "curve"
    log_y: bool = False

    @property
    def first(self) -> str:
        """The group to show first: the one with the most different skips; the last one if there are several."""
        looks: dict[str, set[str]] = {}
        for series in self.series:
            looks.setdefault(series.group, set()).add(series.color)
        return max(reversed(looks), key=lambda group: len(looks[group]), default="")

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"first": self.first}


def charts(tables: Sequence[ResultTable]) -> list[Chart]:
    """For each table: training loss, cumulative geodesic error, and the main metric versus kernel size and model size.

    Every title names its table, so no two charts of a page have the same title.
    """
    titles = [table.title for table in tables]
    names = [f"{t.title}, {t.schedule} schedule" if titles.count(t.title) > 1 else t.title for t in tables]
    drawn = [chart for table, name in zip(tables, names, strict=True) for chart in _charts_of(table, name)]
    return [chart for chart in drawn if chart.series]


def _charts_of(table: ResultTable, name: str) -> list[Chart]:
    band = ", averaged over seeds; the band spans all seeds" if any(len(row.runs) > 1 for row in table.own) else ""
    curves = [
        Chart(
            f"{table.key}-loss",
            f"{name}: training loss",
            f"Mean loss of each epoch{band}.",
            "Epoch",
            "Loss",
            _curves(table.own, "loss"),
            log_y=True,
        ),
        Chart(
            f"{table.key}-geodesic",
            f"{name}: cumulative geodesic error",
            "Percentage of vertices matched within a given geodesic distance; higher is better.",
            "Geodesic error, % of the diameter",
            "Vertices, %",
            _curves(table.own, "geodesic"),
        ),
    ]
    metric = next((m for m in table.subject.metrics if m.better), None)
    return curves + (_versus(table, name, metric) if metric else [])


def _versus(table: ResultTable, name: str, metric: Metric) -> list[Chart]:
    """The metric versus kernel size, if there are several sizes, and versus the number of parameters."""
    y = f"{metric.heading}, {metric.unit}"
    sized = [row for row in table.own if row.size is not None]
    printed = [row for row in table.own if metric.key in row.paper]
    hollow = " Hollow marks are the paper's results" if printed else ""
    bars = " Bars are 95 % confidence intervals of the mean." if any(len(row.runs) > 1 for row in table.own) else ""
    better = f"{metric.better.capitalize()} is better.{bars}{hollow}"
    drawn = []
    # The additional weight matrix of MoNet+ does not make another size.
    if len({row.group[1] for row in sized}) > 1:
        drawn.append(
            Chart(
                f"{table.key}-size",
                f"{name}: {metric.heading.lower()} versus kernel size",
                f"One line per method{_powers(sized)}. {better}{hollow and '.'}",
                "Weight matrices M",
                y,
                _lines(sized, metric, lambda row: float(row.matrices or 0)),
                "points",
            )
        )
    if len({row.parameters for row in table.own}) > 1:
        drawn.append(
            Chart(
                f"{table.key}-parameters",
                f"{name}: {metric.heading.lower()} versus model size",
                f"{better}{hollow and _counted(printed)}",
                "Parameters",
                y,
                _lines(table.own, metric, lambda row: float(row.parameters), _paper_count),
                "points",
            )
        )
    return drawn


def _paper_count(row: ResultRow) -> float:
    return float(row.parameters if row.paper_parameters is None else row.paper_parameters)


def _counted(rows: Sequence[ResultRow]) -> str:
    """At whose parameter counts the paper's marks are drawn."""
    given = {row.paper_parameters is not None for row in rows}
    if given == {True}:
        return ", at its own parameter counts."
    return (
        ", at its own parameter counts where known, otherwise at ours."
        if True in given
        else ", at our parameter counts."
    )


def _powers(rows: Sequence[ResultRow]) -> str:
    """Explains the number of weight matrices of SplineCNN, if it is among the rows."""
    size = next((row.size for row in rows if row.size is not None and row.size.letter == "m"), None)
    power = "" if size is None else {2: "²", 3: "³"}.get(size.dim, "")
    return "" if size is None else f"; SplineCNN with m control values per dimension has M = m{power}"


def _lines(
    rows: Sequence[ResultRow], metric: Metric, x: Coordinate, paper_x: Coordinate | None = None
) -> tuple[Series, ...]:
    """One line per method, and one for its results in the paper."""
    methods: dict[tuple[str, ...], list[ResultRow]] = {}
    # Name the pseudo-coordinates only if they differ between rows.
    several = len({row.group[2] for row in rows}) > 1
    for row in rows:
        methods.setdefault((row.method, row.group[2] if several else "", *row.group[3:]), []).append(row)
    ours, paper = [], []
    for (method, *further, variant), members in methods.items():
        suffixes = [*([] if method.endswith("†") else further), variant]
        name = " ".join([method, *(f"({text})" for text in suffixes if text)])
        measured = sorted((row for row in members if metric.key in row.metrics), key=x)
        own = [(x(row), row.metrics[metric.key]) for row in measured]
        look = _look(members[0], members[0].family)
        points = tuple((at, value.mean) for at, value in own)
        low = tuple(value.mean - (value.half or 0.0) for _, value in own)
        high = tuple(value.mean + (value.half or 0.0) for _, value in own)
        ours.append(Series(name, points, low, high, **look))
        theirs = tuple(
            sorted(((paper_x or x)(row), row.paper[metric.key]) for row in members if metric.key in row.paper)
        )
        paper.append(Series(f"{name}, paper", theirs, paper=True, **look))
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
    size = f", {row.column}" if row.column else ""
    look = _look(row, f"{row.family}{size}")
    return Series(row.label, points, low if several else (), high if several else (), **look)


def _look(row: ResultRow, group: str) -> dict[str, Any]:
    variant = next((end for end in ("†", "+") if row.method.endswith(end) and not row.method.endswith("++")), "")
    return {"color": row.look, "mark": row.operator, "variant": variant, "group": group}


MARKERS = ("o", "s", "^", "D", "v", "P")
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


def write_figures(charts: list[Chart], folder: Path) -> list[Path]:
    """Write each chart as ``KEY.png`` and ``KEY.svg``. Equal charts give equal files."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install geoskip[plots]") from error
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        return [path for chart in charts for path in _write_figure(chart, folder)]


def _write_figure(chart: Chart, folder: Path) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    marks = list(dict.fromkeys(series.mark for series in chart.series))
    for series in chart.series:
        _draw_series(axes, chart, series, MARKERS[marks.index(series.mark) % len(MARKERS)])
    # Matplotlib would read text between dollar signs as mathematics.
    axes.set(xlabel=_escaped(chart.x), ylabel=_escaped(chart.y), title=_escaped(chart.title))
    if chart.log_y:
        axes.set_yscale("log")
    columns = 1 if len(chart.series) <= 8 else 2
    figure.legend(loc="outside right upper", fontsize=7, frameon=False, ncols=columns)
    paths = [folder / f"{chart.key}.{kind}" for kind in ("png", "svg")]
    save_figure(figure, paths[0], dpi=200)
    save_figure(figure, paths[1], metadata={"Date": None})
    return paths


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Save a matplotlib figure atomically, in the format given by the suffix."""
    buffer = BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], **options)
    atomic_write(path, buffer.getvalue())


def _draw_series(axes: Any, chart: Chart, series: Series, marker: str) -> None:
    color = SERIES[series.color][0]
    x, y = zip(*series.points, strict=True)
    points = chart.kind == "points"
    axes.plot(
        x,
        y,
        color=color,
        label=_escaped(series.name),
        linestyle=":" if series.paper else DASHES[series.variant],
        linewidth=0.9 if series.paper else 1.6,
        marker=marker if points else "",
        markersize=5,
        markerfacecolor="white" if series.paper else color,
    )
    if points and series.low and series.high != series.low:
        axes.vlines(x, series.low, series.high, color=color, linewidth=1.1)
    elif series.low:
        axes.fill_between(x, series.low, series.high, color=color, alpha=0.16, linewidth=0)


def _escaped(text: str) -> str:
    return text.replace("$", r"\$")
