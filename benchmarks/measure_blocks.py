"""The run: every problem, ours and the peers side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from benchmarks.cases import Case, Contender, make_case, ours
from benchmarks.checking import PEER_TOLERANCE, TOLERANCE, check, reference_results
from benchmarks.measurements import OURS, Row
from benchmarks.peers import Call, has_same_work, pyg_calls, pyg_contender
from benchmarks.roofline import Ceilings, work_of
from benchmarks.timing import captured, peak_bytes, release, time_steps
from benchmarks.workloads import Problem, Workload, problems

TRIAL_SECONDS = 0.05


@dataclass(frozen=True)
class Settings:
    """How to measure: where, how long a contender is timed, which peers are asked."""

    device: torch.device
    seconds: float = 0.3
    peers: bool = True
    compiled: bool = False


def chosen_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one."""
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: the benchmark knows cpu and cuda, got {name}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: torch sees no CUDA device here; use --device cpu")
    return device


def measure_workload(
    workload: Workload, operators: Sequence[str] | None, settings: Settings, ceilings: Ceilings
) -> Iterator[Row]:
    """All rows of a workload, an operator and kernel size at a time."""
    graph = workload.make_graph().to(settings.device)
    for pair in problems(workload, operators):
        rows: list[Row] = []
        for problem in pair:
            rows += _measure_problem(make_case(problem, graph, settings.device), settings, ceilings)
            release(settings.device)
        yield from with_ratios(rows)


def _measure_problem(case: Case, settings: Settings, ceilings: Ceilings) -> list[Row]:
    """Ours, eager and captured, and the peers."""
    floor = ceilings.floor_milliseconds(work_of(case))
    reference = reference_results(case)
    release(case.device)

    def row(path: str, call: str, make: Callable[[], Contender]) -> Row:
        empty = Row(*_named(case.problem), path, call, floor_milliseconds=floor)
        measured = _measured(empty, make, reference, settings)
        release(case.device)
        return measured

    rows = [row("geoskip", "block(x, graph)", lambda: ours(case))]
    for path, mode in _modes(case, settings):
        rows.append(row(path, "block(x, graph)", partial(ours, case, path, mode=mode)))
    if case.device.type == "cuda":
        rows.append(row("captured", "block(x, graph), captured", lambda: captured(ours(case))))
    if settings.peers:
        rows += _peer_rows(case, settings, row)
    return rows


def _peer_rows(
    case: Case, settings: Settings, row: Callable[[str, str, Callable[[], Contender]], Row]
) -> Iterator[Row]:
    if not has_same_work(case.problem):
        if case.problem.operator in ("spiral", "spline"):
            yield row(
                "reference", "block(x, graph) on the reference path", lambda: ours(case, "reference", "reference")
            )
        return
    try:
        calls = pyg_calls(case)
    except Exception as error:
        yield Row(*_named(case.problem), "PyG", "", problem=failed(error))
        return
    trials = tried(case, calls)
    best = min(calls, key=lambda call: trials[call.text])
    yield replace(row("PyG", best.text, lambda: pyg_contender(case, best)), tried=_finite(trials))
    for path, mode in _modes(case, settings):
        yield row(f"PyG {path}", calls[0].text, partial(pyg_contender, case, calls[0], f"PyG {path}", mode))


def _modes(case: Case, settings: Settings) -> list[tuple[str, str]]:
    """Paths and modes of torch.compile that are measured: of blocks with a skip, since to compile takes seconds."""
    if not (settings.compiled and case.problem.skip):
        return []
    graphs = [("reduce-overhead", "reduce-overhead")] if case.device.type == "cuda" else []
    return [("compiled", "default"), *graphs]


def tried(case: Case, calls: Sequence[Call]) -> dict[str, float]:
    """Milliseconds of each call in a short trial; infinitely many of one that fails."""
    times = {}
    for call in calls:
        try:
            steps = pyg_contender(case, call).steps[:1]
            times[call.text] = time_steps(steps, case.device, TRIAL_SECONDS, least=1).milliseconds
        except Exception:
            times[call.text] = math.inf
        release(case.device)
    return times


def _measured(row: Row, make: Callable[[], Contender], reference: dict[str, torch.Tensor], settings: Settings) -> Row:
    """Checked, then timed; what fails keeps its reason instead of a time. A peer may raise anything at all."""
    try:
        contender = make()
        row = replace(row, call=contender.call)
        verdict = check(contender, reference)
        row = replace(row, error=verdict.error, worst=verdict.worst, repeats=verdict.repeats)
        if not verdict.passes(TOLERANCE if row.path in OURS else PEER_TOLERANCE):
            return replace(row, problem=f"wrong result: {verdict.worst} is off by {verdict.error:.1e}")
        with contender.on_path():
            peak = contender.peak_bytes or peak_bytes(contender.steps[0], settings.device)
            timing = time_steps(contender.steps, settings.device, settings.seconds)
    except Exception as error:
        return replace(row, problem=failed(error))
    return replace(
        row,
        milliseconds=timing.milliseconds,
        quartiles=(timing.low, timing.high),
        samples=timing.samples,
        peak_bytes=peak,
    )


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Ours compared with the peer that does the same work; plain MoNet with the peer that has the skip as well."""
    peers = {row.skip: row for row in rows if row.path in ("PyG", "reference")}
    return [_with_ratio(row, peers) if row.is_ours else row for row in rows]


def _with_ratio(row: Row, peers: dict[bool, Row]) -> Row:
    peer = peers.get(row.skip) or peers.get(True)
    if peer is None:
        return row
    return replace(
        row,
        against=peer.path,
        peer_does_more=peer.skip and not row.skip,
        time_ratio=_over(peer.milliseconds, row.milliseconds),
        memory_ratio=_over(peer.peak_bytes, row.peak_bytes),
    )


def _over(theirs: float | int | None, ours: float | int | None) -> float | None:
    return theirs / ours if theirs is not None and ours else None


def _finite(times: dict[str, float]) -> dict[str, float | None]:
    return {text: time if math.isfinite(time) else None for text, time in times.items()}


def _named(problem: Problem) -> tuple[str, str, int, bool]:
    return problem.workload.name, problem.operator, problem.slots, problem.skip


def failed(error: Exception) -> str:
    return f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
