"""What is measured: the three workloads, and the operators on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.surfaces import sphere_graph, superpixel_graphs
from geoskip.graphs import Graph
from geoskip.operators import operator_info

# In the order in which they are measured and shown.
ORDER = ("monet", "feast", "cheb", "gcn", "gin", "spiral", "spline")
# B-splines multiply over the dimensions: M as a product of one size for each.
SPLINE_SIZES = {9: (3, 3, 1), 10: (5, 2, 1), 14: (7, 2, 1), 25: (5, 5)}
# What a superpixel graph of PyTorch Geometric's MNIST has on average: 1,393 edges, half of them the other way.
SUPERPIXEL_PAIRS = 696


@dataclass(frozen=True)
class Workload:
    """One block's work: ``batch`` items on one graph, channels in and out, the kernel sizes M.

    ``has_spirals`` is whether the graph is a mesh; superpixels are none, so SpiralNet++ has no work there.
    """

    name: str
    surface: str
    batch: int
    in_channels: int
    out_channels: int
    kernel_sizes: tuple[int, ...]
    dim: int
    make_graph: Callable[[], Graph]
    has_spirals: bool = True

    @property
    def about(self) -> str:
        items = f"batch {self.batch}, " if self.batch > 1 else ""
        return f"{items}{self.surface}, {self.in_channels} → {self.out_channels} channels"


@dataclass(frozen=True)
class Problem:
    """A block of a workload: which operator, which M, with the affine skip or without."""

    workload: Workload
    operator: str
    slots: int
    skip: bool

    @property
    def kernel_size(self) -> int | tuple[int, ...] | None:
        """As :func:`~geoskip.operators.make_operator` takes it."""
        if not operator_info(self.operator).has_kernel_size:
            return None
        return spline_sizes(self.slots, self.workload.dim) if self.operator == "spline" else self.slots


def spline_sizes(slots: int, dim: int) -> tuple[int, ...]:
    sizes = SPLINE_SIZES.get(slots, (slots,))
    return (*sizes, *(1,) * (dim - len(sizes))) if dim >= len(sizes) else (slots, *(1,) * (dim - 1))


FACES = Workload("faces", "5,023 vertices", 32, 32, 32, (9, 14), 3, lambda: sphere_graph(5023, 14))
BODIES = Workload("bodies", "6,890 vertices", 1, 64, 128, (10,), 3, lambda: sphere_graph(6890, 10))
SUPERPIXELS = Workload(
    "superpixels", "64 packed graphs of 75 vertices with 18.6 neighbours each", 1, 32, 64, (25,), 2,
    lambda: superpixel_graphs(64, 75, SUPERPIXEL_PAIRS), has_spirals=False,
)  # fmt: skip
WORKLOADS = {workload.name: workload for workload in (FACES, BODIES, SUPERPIXELS)}


def chosen_workloads(names: Sequence[str] | None, quick: bool = False, smallest: bool = False) -> list[Workload]:
    """By name, all if none is named; a quick run has batches of 4, and like ``smallest`` one kernel size."""
    workloads = [WORKLOADS[name] for name in chosen_names("workload", names, tuple(WORKLOADS))]
    if quick or smallest:
        workloads = [replace(w, kernel_sizes=w.kernel_sizes[:1]) for w in workloads]
    return [replace(w, batch=min(w.batch, 4)) for w in workloads] if quick else workloads


def own_workload(sizes: str) -> Workload:
    """Meshes of the sizes ``"batch,vertices,in,out,M"``."""
    try:
        batch, vertices, *channels, slots = (int(size) for size in sizes.split(","))
        in_channels, out_channels = channels
    except ValueError:
        raise ValueError(f"own: expected batch, vertices, channels in, channels out and M, got {sizes!r}") from None
    if min(batch, in_channels, out_channels, slots) < 1:
        raise ValueError(f"own: expected numbers of at least 1, got {sizes!r}")
    return Workload(
        "own", f"{vertices:,} vertices", batch, in_channels, out_channels, (slots,), 3,
        lambda: sphere_graph(vertices, slots),
    )  # fmt: skip


def problems(workload: Workload, operators: Sequence[str] | None = None) -> Iterator[tuple[Problem, Problem]]:
    """Every operator and kernel size of a workload, without and with the skip."""
    for operator in checked_operators(operators):
        if operator_info(operator).needs_spirals and not workload.has_spirals:
            continue
        for slots in workload.kernel_sizes if operator_info(operator).has_kernel_size else (1,):
            yield Problem(workload, operator, slots, skip=False), Problem(workload, operator, slots, skip=True)


def checked_operators(names: Sequence[str] | None) -> list[str]:
    """By name, all if none is named."""
    return chosen_names("operator", names, ORDER)


def chosen_names(what: str, names: Sequence[str] | None, known: tuple[str, ...]) -> list[str]:
    for name in names or ():
        if name not in known:
            raise ValueError(f"{what}: unknown name {name!r}; choose from {', '.join(known)}")
    return [name for name in known if not names or name in names]
