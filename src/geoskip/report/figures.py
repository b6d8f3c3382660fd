"""The charts as PNG and SVG files, for papers and slides; drawn by matplotlib, the extra ``plots``."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from geoskip.records.atomic import write_whole
from geoskip.report.charts import Chart, Series
from geoskip.report.palette import SERIES

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
    """Every chart as ``KEY.png`` and ``KEY.svg``; equal files for equal charts."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install geoskip[plots]") from error
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        return [path for chart in charts for path in _write(chart, folder)]


def _write(chart: Chart, folder: Path) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    marks = list(dict.fromkeys(series.mark for series in chart.series))
    for series in chart.series:
        _draw(axes, chart, series, MARKERS[marks.index(series.mark) % len(MARKERS)])
    # A dollar sign would start mathematics.
    axes.set(xlabel=_text(chart.x), ylabel=_text(chart.y), title=_text(chart.title))
    if chart.log_y:
        axes.set_yscale("log")
    columns = 1 if len(chart.series) <= 8 else 2
    figure.legend(loc="outside right upper", fontsize=7, frameon=False, ncols=columns)
    paths = [folder / f"{chart.key}.{kind}" for kind in ("png", "svg")]
    save_figure(figure, paths[0], dpi=200)
    save_figure(figure, paths[1], metadata={"Date": None})
    return paths


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Save a figure of matplotlib, in the format of the suffix, complete or not at all."""
    buffer = BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], **options)
    write_whole(path, buffer.getvalue())


def _draw(axes: Any, chart: Chart, series: Series, marker: str) -> None:
    colour = SERIES[series.colour][0]
    x, y = zip(*series.points, strict=True)
    points = chart.kind == "points"
    axes.plot(
        x,
        y,
        color=colour,
        label=_text(series.name),
        linestyle=":" if series.paper else DASHES[series.variant],
        linewidth=0.9 if series.paper else 1.6,
        marker=marker if points else "",
        markersize=5,
        markerfacecolor="white" if series.paper else colour,
    )
    if points and series.low and series.high != series.low:
        axes.vlines(x, series.low, series.high, color=colour, linewidth=1.1)
    elif series.low:
        axes.fill_between(x, series.low, series.high, color=colour, alpha=0.16, linewidth=0)


def _text(text: str) -> str:
    return text.replace("$", r"\$")
