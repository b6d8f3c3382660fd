"""The page of benchmarks: Markdown made from records, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.accelerated_models import acceleration_section
from benchmarks.cells import block_name, line, megabytes, number, percent, ratio, scientific, yes_no
from benchmarks.matrix_products import products_section
from benchmarks.measurements import PATHS, Row, rows_of
from benchmarks.start import LOOP
from benchmarks.training.sections import loop_section, training_section
from geoskip.operators import operator_info
from geoskip.records.reading import ReadError, read_json

ROOT = Path(__file__).parents[1]
RECORDS, PAGE = ROOT / "results" / "bench", ROOT / "docs" / "benchmarks.md"
INTRODUCTION = """\
# Benchmarks

geoskip next to PyTorch Geometric (PyG), both measured in the same run. `python -m benchmarks table` writes this page
from the records in `results/bench/`; do not edit it. Each record is one run of `python -m benchmarks`. To measure a
mesh of your own size (here 8 meshes of 20,000 vertices, 64 → 64 channels, M = 9) on your machine:

```bash
python -m benchmarks blocks --operator monet --own 8,20000,64,64,9
```

- A **step** is forward and backward of one block in float32, with the gradients of x and of every parameter. Times are
  medians over several sets of inputs that together exceed the cache.
- **captured** steps are replayed as a CUDA graph. Eager steps on small graphs wait for the host, so their times depend
  on the host as much as on the GPU.
- **compiled** steps run through `torch.compile` in its default mode, **reduce-overhead** in the mode that captures CUDA
  graphs. They are measured for blocks with a skip.
- **PyG** runs eagerly with the same parameters on packed disjoint copies, with the fastest of its documented calls,
  which is named below each table. Its MoNet cannot leave out the root weight, which is an affine skip. Plain MoNet (*)
  is therefore compared with PyG's Aff-MoNet.
- **reference** is geoskip's own reference formula. It stands in for PyG where PyG needs further packages (SpiralNet++,
  SplineCNN).
- **MB** is the peak memory of a step, without inputs, parameters and graph.
- **roofline** is the shortest time that the bytes and operations of the step allow on the machine, divided by the
  measured time.
- **error** is the largest relative error of the output and the gradients, compared with the reference in float64. Above
  1e-5 a result of geoskip counts as wrong.
- **repeats** says whether two runs agree bitwise.
"""


def load(path: Path) -> dict[str, Any]:
    """A record that ``python -m benchmarks … -o`` wrote."""
    try:
        record = read_json(path)
    except ReadError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(record, dict) or record.get("kind") not in SECTIONS:
        raise ValueError(f"{path}: not a benchmark record; write one with python -m benchmarks -o {path}")
    return record


def document(records: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """One section for each record; ``records`` are (name, record), shown in the order of their names."""
    sections = [INTRODUCTION]
    for name, record in sorted(records, key=lambda pair: pair[0]):
        sections.append("\n".join(_section(name, record)))
    return "\n".join(sections)


def _section(name: str, record: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}: {record['machine']['device']}"
    yield ""
    yield from _machine(record["machine"])
    yield from tables(record)


def tables(record: dict[str, Any]) -> Iterator[str]:
    """What a record says, without the machine; commands print it, too."""
    return SECTIONS[record["kind"]](record)


def _machine(machine: dict[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    flags = ", ".join(f"{name} {value}" for name, value in machine["precision"].items())
    threads = f"{machine['threads']} threads; " if machine["device_type"] == "cpu" else ""
    commit = f"Commit {machine['commit'][:8]}. " if machine.get("commit") else ""
    one_thread = " Backward runs on the calling thread." if machine.get("one_thread") else ""
    yield f"{commit}{threads}{versions}. Precision: {flags}.{one_thread}"
    yield ""


def _blocks(record: dict[str, Any]) -> Iterator[str]:
    ceilings = record["ceilings"]
    copy, product = ceilings["bytes_per_second"], ceilings["operations_per_second"]
    yield f"Measured limits: {number(copy / 1e9)} GB/s (copy), {number(product / 1e12)} TFLOP/s (float32 product)."
    if "eager_milliseconds" in ceilings:
        eager = number(ceilings["eager_milliseconds"])
        yield f"An autograd function in Python with one small kernel forward and one backward takes {eager} ms."
    if record["machine"]["device_type"] == "cpu" and None not in record["load"]:
        before, after = record["load"]
        yield f"Load average: {before} before the run, {after} after it."
    yield ""
    for workload, group in groupby(rows_of(record), key=lambda row: row.workload):
        rows = list(group)
        yield f"### {workload}: {record['workloads'][workload]}"
        yield ""
        yield from _block_table(rows)
        yield from _notes(rows)


def _block_table(rows: list[Row]) -> Iterator[str]:
    paths = [path for path in PATHS if _has(rows, path)]
    measured = {row.path for row in rows if row.peak_bytes is not None}
    peaks = [path for path in ("geoskip", "captured", "PyG", "reference") if path in measured]
    head = ["block", *(f"{path}, ms" for path in paths), "× faster"]
    head += ["captured, × faster"] if "captured" in paths else []
    head += [*(f"{path}, MB" for path in peaks), "× less memory"] if peaks else []
    head += ["roofline", "error", "repeats"]
    yield line(head)
    yield line(["---"] + ["---:"] * (len(head) - 1))
    for _, group in groupby(rows, key=lambda row: (row.operator, row.slots, row.skip)):
        by_path = {row.path: row for row in group}
        yield line(_block_cells(by_path, paths, peaks))
    yield ""


def _block_cells(by_path: dict[str, Row], paths: Sequence[str], peaks: Sequence[str]) -> list[str]:
    ours = by_path["geoskip"]
    fastest = by_path.get("captured", ours)
    mark = "*" if ours.peer_does_more else ""
    cells = [block_name(ours), *(_time(by_path.get(path)) for path in paths), ratio(ours.time_ratio) + mark]
    cells += [ratio(fastest.time_ratio) + mark] if "captured" in paths else []
    if peaks:
        cells += [megabytes(by_path[path].peak_bytes) if path in by_path else "–" for path in peaks]
        cells += [ratio(ours.memory_ratio) + mark]
    return [*cells, percent(fastest.roofline_share), scientific(ours.error), yes_no(ours.repeats)]


def _time(row: Row | None) -> str:
    if row is None:
        return "–"
    return number(row.milliseconds) if row.problem is None else row.problem.partition(":")[0]


def _notes(rows: list[Row]) -> Iterator[str]:
    """Which call of the peer was timed, what failed, what the skip costs."""
    calls = {row.operator: row.call for row in rows if row.path == "PyG" and row.problem is None}
    for operator, call in calls.items():
        yield f"- {operator_info(operator).title} in PyG: `{call}`"
    for row in rows:
        if row.problem is not None:
            yield f"- {block_name(row)}, {row.path}: {row.problem}"
    yield from _skip_costs(rows)
    yield ""


def _skip_costs(rows: list[Row]) -> Iterator[str]:
    """Of captured steps if there are any: the time of an eager step is mostly that of the host."""
    path = "captured" if _has(rows, "captured") else "geoskip"
    ours = {(row.operator, row.slots, row.skip): row for row in rows if row.path == path and row.problem is None}
    pairs = [(ours[o, m, False], row) for (o, m, skip), row in ours.items() if skip and (o, m, False) in ours]
    if not pairs:
        return
    costs = [f"{block_name(bare)}: {_over(row, bare)}" for bare, row in pairs]
    how = ", captured" if path == "captured" else ""
    yield f"- Cost of the affine skip, relative to the plain block{how}: {'; '.join(costs)}"


def _over(row: Row, bare: Row) -> str:
    assert row.milliseconds is not None
    assert bare.milliseconds is not None
    time = f"{row.milliseconds / bare.milliseconds:.2f}× the time"
    if row.peak_bytes is None or not bare.peak_bytes:
        return time
    return f"{time}, {row.peak_bytes / bare.peak_bytes:.2f}× the memory"


def _scaling(record: dict[str, Any]) -> Iterator[str]:
    yield (
        "Blocks with an affine skip, batch 1, 32 → 32 channels, M = 9, on planar triangle meshes. Exponents are fitted "
        "from 64k vertices."
    )
    yield ""
    yield line(["operator", "vertices", "ms", "MB", "error", "repeats"])
    yield line(["---", *["---:"] * 5])
    for point in record["points"]:
        time = number(point["milliseconds"]) if point["problem"] is None else point["problem"].partition(":")[0]
        cells = [operator_info(point["operator"]).title, f"{point['vertices']:,}", time, megabytes(point["peak_bytes"])]
        yield line([*cells, scientific(point["error"]), yes_no(point["repeats"])])
    for growth in record["growth"]:
        name = f"**{operator_info(growth['operator']).title}**"
        yield line([name, "**exponent**", number(growth["time"]), number(growth["memory"]), "", ""])
    yield ""


def _start(record: dict[str, Any]) -> Iterator[str]:
    loops = any(row["side"] == LOOP for row in record["rows"])
    yield (
        "From data in the CPU's memory to the end of the first training step, in a fresh process. With an empty cache "
        "geoskip compiles its kernels, all at once and before the step runs"
        f"{'; the plain loop calls `geoskip.compile_ahead` for that' if loops else ''}."
    )
    yield ""
    yield line(
        ["task", "operator", "library", "Triton's cache", "imports, s", "first step, s", "next step, ms", "kernels"]
    )
    yield line([*["---"] * 4, *["---:"] * 4])
    for row in record["rows"]:
        names = [row["task"], operator_info(row["operator"]).title, row["side"], row["cache"]]
        times = [number(row["imports"]), number(row["first_step"]), number(1e3 * row["second_step"])]
        yield line([*names, *times, str(row["kernels"] or "–")])
    yield ""


def _has(rows: list[Row], path: str) -> bool:
    return any(row.path == path for row in rows)


SECTIONS = {
    "acceleration": acceleration_section,
    "blocks": _blocks,
    "loop": loop_section,
    "products": products_section,
    "scaling": _scaling,
    "start": _start,
    "training": training_section,
}
