"""The figures of README.md and what-skips-learn.md, from the records: ``python -m docs.make_figures [FOLDER]``.

The records in results/runs come from ``geoskip reproduce …``, those in results/analysis from ``geoskip analyze …``.
Only means and spreads are computed here. The colors of the skips are those of the report.
"""

import argparse
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from docs.analyze_power import GRAPH_PAIRS, GraphPair
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from PIL import Image

from geoskip.operators import operator_info
from geoskip.paper.claims import published_tables
from geoskip.paper.experiments import is_comparable
from geoskip.paper.findings import AnalysisRecord, changes, common_loss, quantity_of, read_analysis
from geoskip.report.charts import STYLE
from geoskip.report.palette import SERIES
from geoskip.report.runs import find_runs
from geoskip.report.summary import ResultRow, result_tables

ROOT = Path(__file__).parents[1]
RECORDS, RUNS, IMAGES = ROOT / "results" / "analysis", ROOT / "results" / "runs", ROOT / "docs" / "images"
SKIPS = {
    "none": ("no skip", SERIES["none"][0], "o", "-"),
    "residual": ("residual skip", SERIES["residual"][0], "s", "--"),
    "affine": ("affine skip", SERIES["affine"][0], "^", "-."),
}
# For screens of two pixels per point; figures of 9 inches have the text size of the pages that show them.
DPI = 165
VERTEX = {"a": "#D55E00", "b": "#56B4E9", "c": "#F0E442"}
plt.rcParams |= STYLE | {"font.size": 9.5, "axes.titlesize": 10, "axes.grid": False, "legend.frameon": False}


def results(runs: Path = RUNS) -> Figure:
    """Plain, residual and affine rows of the main tables: the mean over seeds and its 95 % interval.

    Where the rows of a table have been trained with several schedules, all are shown.
    """
    tables = [t for t in result_tables(find_runs([runs]).runs, published_tables()) if is_comparable(t.data)]
    # The rows with the longest training come last.
    by_name = [[t for t in reversed(tables) if t.name == name] for name in ("table1", "table2", "correspondence")]
    shown = [of_name[0] for of_name in by_name]
    rows = [
        [row for t in of_name for row in t.rows if _is_main(row, t.description.metrics[0].key)] for of_name in by_name
    ]
    groups = [list(dict.fromkeys(row.group for row in of_table)) for of_table in rows]
    figure, axes = plt.subplots(1, 3, figsize=(9.4, 3.3), layout="constrained", width_ratios=[len(g) for g in groups])
    for axis, table, of_table, of_groups in zip(axes, shown, rows, groups, strict=True):
        metric = table.description.metrics[0]
        for number, skip in enumerate(SKIPS):
            drawn = [row for row in of_table if row.skip == skip]
            values = [row.metrics[metric.key] for row in drawn]
            positions = [of_groups.index(row.group) + 0.27 * (number - 1) for row in drawn]
            label, color, *_ = SKIPS[skip]
            bars: dict[str, Any] = {"yerr": [value.half for value in values], "capsize": 2, "width": 0.25}
            axis.bar(positions, [value.mean for value in values], color=color, label=label, ecolor="#333333", **bars)
        first = [next(row for row in of_table if row.group == group) for group in of_groups]
        names = [table.named(row).removeprefix("Res-").replace(" (", "\n(") for row in first]
        names = [name.replace("SpiralNet", "Spiral-\nNet") for name in names]
        axis.set_xticks(range(len(names)), names)
        axis.set_title(f"{table.data.capitalize()}\n{metric.label.lower()} ({metric.better} is better)")
    axes[0].legend(ncols=3, loc="upper left", fontsize=8, columnspacing=1, handlelength=1.5)
    axes[0].set_ylim(0, 1.35)
    return figure


def _is_main(row: ResultRow, key: str) -> bool:
    """Whether it has several seeds and is neither a larger kernel nor an ablation of one."""
    return row.metrics[key].count > 1 and not row.larger and not row.method.endswith("†") and row.family != "GIN-0"


def depth(record: AnalysisRecord) -> Figure:
    """Random features in the first row, against theory and with ELU; trained networks in the second."""
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 6.2), layout="constrained")
    axes[0][1].sharey(axes[0][0])
    for axis, activation, quantity in zip(
        axes[0], ("linear", "elu", "elu"), ("frequency", "frequency", "rank"), strict=True
    ):
        rows = [row for row in record.rows if row.get("activation") == activation]
        _by_depth(axis, rows, quantity, joined=activation != "linear")
        axis.set_xlabel("layers that the features have passed")
    for skip, (_, color, _, line) in SKIPS.items():
        theory = [row for row in record.rows if (row["skip"], row.get("activation")) == (skip, "theory")]
        axes[0][0].plot(range(len(theory)), [row["frequency"] for row in theory], color=color, linestyle=line)
    for axis, quantity in zip(axes[1], ("frequency", "rank", "test_noise"), strict=True):
        for weights, opacity in (("initial", 0.3), ("trained", 1.0)):
            rows = [row for row in record.rows if row.get("weights") == weights]
            if weights == "trained" or quantity != "test_noise":
                _by_depth(axis, rows, quantity, alpha=opacity)
        axis.set_xlabel("layers of the network")
    trained = [row for row in record.rows if row.get("weights") == "trained"]
    _by_depth(axes[1][2], trained, "test_shape", markerfacecolor="white")
    axes[0][0].set_title("Linear layers: points measured, lines theory")
    axes[0][1].set_title("Layers with ELU: variation")
    axes[0][2].set_title("Layers with ELU: dimensions left of 32")
    axes[1][0].set_title("Trained networks (pale: before training)")
    axes[1][1].set_title("Trained networks: dimensions of 32")
    axes[1][2].set_title("Test error: noise (filled), shape (empty)")
    for axis in axes[:, 0]:
        axis.set_ylabel("variation between neighbors\n(1: as in noise, 0: smooth)")
    axes[1][2].set_ylabel("error (1: nothing learned)")
    for axis in (axes[0][2], axes[1][1]):
        axis.set_ylabel("effective rank")
        axis.set_yticks([1, 2, 5, 10, 20, 32], ["1", "2", "5", "10", "20", "32"])
        axis.minorticks_off()
    axes[0][0].legend()
    return figure


def _by_depth(axis: Axes, rows: Sequence[dict[str, Any]], quantity: str, joined: bool = True, **style: Any) -> None:
    """Medians over seeds by depth, one line per skip; bars from the 10th to the 90th percentile."""
    depths = sorted({row["depth"] for row in rows})
    for number, (skip, (label, color, marker, line)) in enumerate(SKIPS.items()):
        values = [[row[quantity] for row in rows if (row["skip"], row["depth"]) == (skip, k)] for k in depths]
        low, mid, high = np.array([_interval(cell) for cell in values]).T
        usual: dict[str, Any] = {"color": color, "marker": marker, "markersize": 5, "capsize": 2, "label": label}
        bars = np.stack([mid - low, high - mid])
        positions = np.arange(len(depths)) + 0.08 * (number - 1)
        axis.errorbar(positions, mid, bars, linestyle=line if joined else "", **usual | style)
    axis.set_xticks(range(len(depths)), [str(layers) for layers in depths])
    axis.set_yscale("log")


def power(record: AnalysisRecord) -> Figure:
    """Methods by pairs, the pairs drawn above."""
    pairs, methods = GRAPH_PAIRS, list(dict.fromkeys(row["method"] for row in record.rows))
    figure = plt.figure(figsize=(11, 6.6), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=[2.3, len(methods) * 0.28])
    tops = grid[0].subgridspec(2, len(pairs), wspace=0.05, hspace=0.05)
    for column, pair in enumerate(pairs):
        for row in range(2):
            _draw_graph(figure.add_subplot(tops[row, column]), pair, row)
    axis = figure.add_subplot(grid[1])
    for entry in record.rows:
        x = [pair.name for pair in pairs].index(entry["pair"])
        y = methods.index(entry["method"])
        share = entry["distinguished"] / entry["seeds"]
        ring: dict[str, Any] = {"marker": "o", "s": 95, "edgecolors": "#333333", "linewidths": 1}
        axis.scatter(x, y, facecolors=_blend(share), **ring)
        if 0 < share < 1:
            axis.annotate(f"{entry['distinguished']}/{entry['seeds']}", (x, y), xytext=(8, -3.5), **_OFFSET)
    axis.set_yticks(range(len(methods)), methods)
    axis.set_ylim(len(methods) - 0.5, -0.6)
    axis.set_xlim(-0.5, len(pairs) - 0.5)
    axis.set_xticks(range(len(pairs)), [f"{k}" for k in range(1, len(pairs) + 1)])
    blind = sum(not pair.wl for pair in pairs)
    axis.axvline(blind - 0.5, color="#333333", linewidth=1)
    for y in range(3, len(methods), 3):
        axis.axhline(y - 0.5, color="#bbbbbb", linewidth=0.8)
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.tick_params(length=0)
    words = (
        "filled: random networks distinguish the two graphs above, all of them, or n of m; empty: none does.\n"
        "Left of the line the Weisfeiler-Lehman test fails, and with it every such network."
    )
    axis.set_xlabel(words)
    return figure


def smoothness(record: AnalysisRecord) -> Figure:
    """Change of the slope in training: a point for each seed, a bar for their geometric mean. Below it, the slope over
    the training loss."""
    operators = list(dict.fromkeys(row["operator"] for row in record.rows))
    size = 3.4 * len(operators) + 0.6, 6.8
    figure, axes = plt.subplots(2, len(operators), figsize=size, layout="constrained", squeeze=False)
    for axis, operator in zip(axes[0], operators, strict=True):
        columns = [changes(record.rows, operator, skip) for skip in SKIPS]
        # One grey line for each seed: its three networks began with the same convolutions.
        for joined in zip(*columns, strict=False):
            axis.plot(range(len(SKIPS)), joined, color="#bbbbbb", linewidth=1, zorder=1)
        for number, (values, (_, color, marker, _)) in enumerate(zip(columns, SKIPS.values(), strict=True)):
            axis.scatter([number] * len(values), values, color=color, marker=marker, s=30, zorder=3)
            if values:
                axis.hlines(geometric_mean(values), number - 0.25, number + 0.25, color=color, linewidth=2.5)
        axis.axhline(1, color="#777777", linewidth=0.8, linestyle=":")
        axis.set_xticks(range(len(SKIPS)), [label.replace(" ", "\n") for label, *_ in SKIPS.values()])
        axis.set_xlim(-0.6, len(SKIPS) - 0.4)
        _scale_of_ratios(axis, axes[0][0])
        where = "the spectrum" if operator == "cheb" else "the mesh's edges"
        axis.set_title(f"{operator_info(operator).title}: over {where}")
    axes[0][0].set_ylabel("roughness of filters after training,\nover that before (below 1: smoother)")
    for axis, operator in zip(axes[1], operators, strict=True):
        _scale_of_ratios(axis, axes[1][0])
        _over_loss(axis, [row for row in record.rows if row["operator"] == operator], quantity_of(operator))
    axes[1][0].set_ylabel("roughness of filters during training,\nover that before")
    axes[1][0].legend()
    return figure


def _scale_of_ratios(axis: Axes, first: Axes) -> None:
    """That of the first panel: a change by 1 % must not look like a change by half."""
    axis.sharey(first)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5]))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()


def _over_loss(axis: Axes, rows: Sequence[dict[str, Any]], quantity: str) -> None:
    """Roughness over training loss, one line per run, and the loss at which the runs are compared."""
    for skip, (label, color, marker, line) in SKIPS.items():
        for number, row in enumerate(row for row in rows if row["skip"] == skip):
            losses = [point["loss"] for point in row["progress"]]
            values = [point[quantity] / row["progress"][0][quantity] for point in row["progress"]]
            style: dict[str, Any] = {"color": color, "marker": marker, "linestyle": line, "markersize": 3}
            axis.plot(losses, values, label="" if number else label, linewidth=1, **style)
    axis.axvline(common_loss(rows), color="#777777", linewidth=0.8, linestyle=":")
    axis.set_xscale("log")
    axis.invert_xaxis()
    axis.xaxis.set_major_locator(FixedLocator([0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5]))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("training loss (dotted: equal loss)")


def shares(record: AnalysisRecord) -> Figure:
    """The affine skip's share of each block's output over training, mean over seeds, one panel for each operator."""
    operators = list(dict.fromkeys(row["run"].split("-")[0] for row in record.rows))
    figure, axes = plt.subplots(
        1, len(operators), figsize=(2.8 * len(operators) + 0.9, 3.6), layout="constrained", sharey=True, squeeze=False
    )
    for axis, operator in zip(axes[0], operators, strict=True):
        rows = [row for row in record.rows if row["run"].startswith(f"{operator}-affine-")]
        steps = sorted({row["step"] for row in rows})
        layers = list(dict.fromkeys(row["layer"] for row in rows))
        table = [
            [fmean(row["share"] for row in rows if (row["layer"], row["step"]) == (layer, step)) for step in steps]
            for layer in layers
        ]
        image = axis.imshow(table, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        axis.set_yticks(range(len(layers)), [layer.replace(".", " ") for layer in layers])
        ticks = sorted({0, len(steps) // 2, len(steps) - 1})
        axis.set_xticks(ticks, [f"{steps[tick]:,}" for tick in ticks])
        axis.set_xlabel("training steps")
        axis.set_title(f"Aff-{operator_info(operator).title}")
        for row, values in enumerate(table):
            for column in (0, len(steps) - 1):
                tint = "white" if values[column] < 0.55 else "black"
                axis.text(column, row, f"{values[column]:.2f}", ha="center", va="center", fontsize=7, color=tint)
    figure.colorbar(image, ax=axes[0].tolist(), label="share of the block's output that the skip makes")
    return figure


_OFFSET: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7.5}
FIGURES: dict[str, tuple[str, Callable[[AnalysisRecord], Figure]]] = {
    "analysis-depth": ("depth", depth),
    "analysis-power": ("power", power),
    "analysis-smoothness": ("smoothness", smoothness),
    "analysis-shares": ("shares", shares),
}


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Tenth percentile, median, ninetieth."""
    low, mid, high = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
    return low, mid, high


def _blend(share: float) -> tuple[float, float, float]:
    full = np.array([0.0, 0.447, 0.698])
    r, g, b = (1 - share * (1 - full)).tolist()
    return r, g, b


def _draw_graph(axis: Axes, pair: GraphPair, side: int) -> None:
    """One graph of a pair, in a layout that shows what it is."""
    graph, x = pair.graphs[side], pair.features[side]
    positions = _layout(pair.name, side, graph.num_vertices)
    for i, j in graph.edge_index.t().tolist():
        if i < j:
            axis.plot(*positions[[i, j]].T, color="#555555", linewidth=0.9, zorder=1)
    numbers = x.shape[1] == 1
    for vertex, (px, py) in enumerate(positions):
        letter = "" if numbers else "abc"[int(x[vertex].argmax())]
        value = float(x[vertex, 0]) if numbers else 0.0
        grey = numbers and len(set(x[:, 0].tolist()) | set(pair.features[1 - side][:, 0].tolist())) > 1
        color = str(0.15 + 0.4 * value) if grey else VERTEX.get(letter, "#bbbbbb")
        axis.scatter(px, py, color=color, edgecolors="#333333", linewidths=0.7, s=42 if letter else 26, zorder=2)
        if letter:
            axis.text(px, py - 0.01, letter, ha="center", va="center", fontsize=5.5, zorder=3)
    axis.set_xlim(-1.35, 1.35)
    axis.set_ylim(-1.25, 1.25)
    axis.set_aspect("equal")
    axis.axis("off")


def _layout(name: str, side: int, count: int) -> np.ndarray:
    def circle(count: int, radius: float = 1.0, x: float = 0.0, turn: float = 0.0) -> np.ndarray:
        angles = 2 * np.pi * np.arange(count) / count + np.pi / 2 + turn
        return np.stack([x + radius * np.cos(angles), radius * np.sin(angles)], axis=1)

    special: dict[tuple[str, int], Any] = {
        ("hexagon, two triangles", 1): [*circle(3, 0.55, -0.62), *circle(3, 0.55, 0.62)],
        ("decalin, bicyclopentyl", 0): _decalin(),
        ("decalin, bicyclopentyl", 1): [
            *circle(5, 0.55, -0.75, -np.pi / 2),
            *circle(5, 0.55, 0.75, np.pi / 2),
        ],
        ("path, star", 0): [(-1, 0), (-0.33, 0), (0.33, 0), (1, 0)],
        ("path, star", 1): [(0, 0), *circle(3)],
        ("hexagon, K3,3", 1): [(x, y) for y in (0.7, -0.7) for x in (-0.9, 0, 0.9)],
        ("two edges ab, complete aabb", 0): [(-0.6, 0.6), (-0.6, -0.6), (0.6, 0.6), (0.6, -0.6)],
        ("two edges ab, square abab", 0): [(-0.6, 0.6), (-0.6, -0.6), (0.6, 0.6), (0.6, -0.6)],
        ("two edges ab, square abab", 1): [(-0.6, 0.6), (-0.6, -0.6), (0.6, -0.6), (0.6, 0.6)],
        ("edge 0-2, edge 1-1", 0): [(-0.6, 0), (0.6, 0)],
        ("edge 0-2, edge 1-1", 1): [(-0.6, 0), (0.6, 0)],
    }
    turn = np.pi / 4 if count == 4 else 0.0
    return np.array(special.get((name, side), circle(count, turn=turn)), dtype=float)


def _decalin() -> np.ndarray:
    """A ring of ten with one chord, drawn as two hexagons that share it."""
    s = 0.52
    h = s * np.sqrt(3) / 2
    right = [(0, s / 2), (h, s), (2 * h, s / 2), (2 * h, -s / 2), (h, -s)]
    left = [(0, -s / 2), (-h, -s), (-2 * h, -s / 2), (-2 * h, s / 2), (-h, s)]
    return np.array([*right, *left])


def main(folder: Path, records: Path = RECORDS) -> list[Path]:
    """Make the figures whose records are there; their paths."""
    figures = {
        name: draw(read_analysis(records / f"{record}.json"))
        for name, (record, draw) in FIGURES.items()
        if (records / f"{record}.json").is_file()
    }
    return [save(folder / f"{name}.png", figure) for name, figure in figures.items()]


def save(path: Path, figure: Figure) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = BytesIO()
    figure.savefig(pixels, dpi=DPI)
    plt.close(figure)
    # 256 colors are all that lines and letters need, in a third of the size.
    Image.open(pixels).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", nargs="?", type=Path, default=IMAGES)
    args = options.parse_args()
    for path in (save(args.folder / "results.png", results()), *main(args.folder)):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
