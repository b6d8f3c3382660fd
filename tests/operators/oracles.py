r"""The operators as the paper prints them, and RBFConv: scalars, lists and loops, nothing of geoskip.

``x[i][c]`` are features, ``theta[m][c][o]`` the matrices of the slots, ``b[o]`` the bias. Each oracle returns
``y[i][o]``. What the paper leaves open is settled as in the design's table of bases: an edge that is listed twice
counts twice; where an operator brings its own term for the center vertex (GCN, FeaStNet's self-loops), a self-loop
of the graph is that term and counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, prod, sqrt

Vector = list[float]
Matrix = list[Vector]


@dataclass(frozen=True)
class Lists:
    """A graph as plain lists: edges (sender, receiver), u of each edge, the spiral around each vertex, edge weights."""

    num_vertices: int
    edges: list[tuple[int, int]]
    pseudo: Matrix
    spirals: list[list[int]]
    weights: Vector | None = None

    def into(self, i: int) -> list[tuple[int, Vector]]:
        """The neighbours j of i, each with its u_ij."""
        return [(j, u) for (j, receiver), u in zip(self.edges, self.pseudo, strict=True) if receiver == i]

    def neighbours(self, i: int) -> list[int]:
        return [j for j, _ in self.into(i)]

    def others(self, i: int) -> list[int]:
        return [j for j in self.neighbours(i) if j != i]

    def weighted(self) -> list[tuple[int, int, float]]:
        """(sender, receiver, w) of each edge; without weights, w is 1."""
        weights = self.weights or [1.0] * len(self.edges)
        return [(j, i, w) for (j, i), w in zip(self.edges, weights, strict=True)]

    def loop(self, i: int) -> float:
        """The weight of i's self-loop; without weights, or where the graph has none, 1."""
        return next((w for j, k, w in self.weighted() if j == k == i and self.weights), 1.0)


def times(x: Vector, matrix: Matrix) -> Vector:
    return [sum(x[c] * matrix[c][o] for c in range(len(x))) for o in range(len(matrix[0]))]


def accumulate(y: Vector, weight: float, values: Vector) -> None:
    for o, value in enumerate(values):
        y[o] += weight * value


def skip(y: Matrix, x: Matrix, matrix: Matrix) -> Matrix:
    """y_i + A x_i, with A stored as [in, out]."""
    return [[a + b for a, b in zip(y_i, times(x_i, matrix), strict=True)] for y_i, x_i in zip(y, x, strict=True)]


def monet(x: Matrix, graph: Lists, theta: list[Matrix], mean: Matrix, scale: Matrix, b: Vector) -> Matrix:
    """w_m(u) = exp(-½ (u - μ_m)ᵀ Σ_m⁻¹ (u - μ_m)), Σ_m = diag(σ_m²); summed over N(i)."""
    y = []
    for i in range(graph.num_vertices):
        y_i = list(b)
        for m in range(len(theta)):
            for j, u in graph.into(i):
                distance = sum(
                    (u[d] - mean[m][d]) * (1 / scale[m][d] ** 2) * (u[d] - mean[m][d]) for d in range(len(u))
                )
                accumulate(y_i, exp(-0.5 * distance), times(x[j], theta[m]))
        y.append(y_i)
    return y


PROFILES = {
    "gaussian": lambda r: exp(-(r**2)),
    "thin_plate": lambda r: r**2 * log(r),
    "inverse_multiquadric": lambda r: 1 / sqrt(1 + r**2),
}


def rbf(x: Matrix, graph: Lists, theta: list[Matrix], mean: Matrix, scale: Matrix, b: Vector, kernel: str) -> Matrix:
    """Σ_j x_j G(u_ij), G(u) = Σ_m φ(‖(u - μ_m) / σ_m‖) Θ_m, a matrix for each edge."""
    y = []
    for i in range(graph.num_vertices):
        y_i = list(b)
        for j, u in graph.into(i):
            for m in range(len(theta)):
                radius = sqrt(sum(((u[d] - mean[m][d]) / scale[m][d]) ** 2 for d in range(len(u))))
                accumulate(y_i, PROFILES[kernel](radius), times(x[j], theta[m]))
        y.append(y_i)
    return y


def feast(
    x: Matrix,
    graph: Lists,
    theta: list[Matrix],
    attention: Matrix,
    offset: Vector,
    b: Vector,
    receiver_attention: Matrix | None,
    self_loops: bool,
) -> Matrix:
    """b + 1/|N(i)| Σ_m Σ_j q_m(x_i, x_j) W_m x_j; q_m is a softmax over m of ⟨a_m, x_j - x_i⟩ + c_m."""
    slots, channels = range(len(theta)), range(len(attention[0]))
    y = []
    for i in range(graph.num_vertices):
        y_i = list(b)
        neighbours = [*graph.others(i), i] if self_loops else graph.neighbours(i)
        for j in neighbours:
            logits = []
            for m in slots:
                if receiver_attention is None:
                    logit = sum(attention[m][c] * (x[j][c] - x[i][c]) for c in channels)
                else:
                    logit = sum(attention[m][c] * x[j][c] + receiver_attention[m][c] * x[i][c] for c in channels)
                logits.append(logit + offset[m])
            for m in slots:
                q = exp(logits[m]) / sum(exp(logit) for logit in logits)
                accumulate(y_i, q / len(neighbours), times(x[j], theta[m]))
        y.append(y_i)
    return y


def gcn(x: Matrix, graph: Lists, theta: Matrix, b: Vector, renormalize: bool) -> Matrix:
    """L̃ X Θ, L̃_ij = w_ij/sqrt(d_i d_j); d sums what a vertex receives, its self-loop included.

    Or (I + D^-½ A D^-½) X Θ, where d does not count the self-loop.
    """
    vertices = range(graph.num_vertices)
    degree = [graph.loop(i) * renormalize for i in vertices]
    proper = [(j, i, w) for j, i, w in graph.weighted() if j != i]
    for _, i, w in proper:
        degree[i] += w
    y = [list(b) for _ in vertices]
    for i in vertices:
        accumulate(y[i], graph.loop(i) / degree[i] if renormalize else graph.loop(i), times(x[i], theta))
    for j, i, w in proper:
        accumulate(y[i], w / sqrt(degree[i] * (degree[j] or 1)), times(x[j], theta))
    return y


def gin(
    x: Matrix, graph: Lists, theta: Matrix, hidden_bias: Vector, theta_out: Matrix, b: Vector, epsilon: float
) -> Matrix:
    """γ((1 + ε) x_i + Σ_j w_ij x_j), γ of two layers with a ReLU between them."""
    y = []
    for i in range(graph.num_vertices):
        total = [(1 + epsilon) * value for value in x[i]]
        for j, receiver, w in graph.weighted():
            accumulate(total, w * (receiver == i), x[j])
        hidden = [max(0.0, h + c) for h, c in zip(times(total, theta), hidden_bias, strict=True)]
        y.append([o + c for o, c in zip(times(hidden, theta_out), b, strict=True)])
    return y


def laplacian(graph: Lists) -> Matrix:
    """L = -D^-½ A D^-½, a_ij the weights of the edges from j to i ≠ j; rows of isolated vertices are 0.

    D has the sums of rows, or with edge weights, as in PyTorch Geometric, of columns.
    """
    vertices = range(graph.num_vertices)
    proper = [(j, i, w) for j, i, w in graph.weighted() if j != i]
    degree = [sum(w for j, i, w in proper if k == (j if graph.weights else i)) for k in vertices]
    dense = [[0.0 for _ in vertices] for _ in vertices]
    for j, i, w in proper:
        dense[i][j] -= w / sqrt(degree[i] * degree[j])
    return dense


def cheb(x: Matrix, graph: Lists, theta: list[Matrix], b: Vector, center: bool) -> Matrix:
    """Σ_m T_m(L) X Θ_m for m = 0..M-1 (†: 1..M), T_k = 2 L T_{k-1} - T_{k-2} as matrices."""
    vertices = range(graph.num_vertices)
    ell = laplacian(graph)
    polynomials = [[[float(i == j) for j in vertices] for i in vertices], ell]
    while len(polynomials) <= len(theta):
        before, last = polynomials[-2:]
        polynomials.append(
            [[2 * sum(ell[i][k] * last[k][j] for k in vertices) - before[i][j] for j in vertices] for i in vertices]
        )
    first = 0 if center else 1
    y = []
    for i in vertices:
        y_i = list(b)
        for m, matrix in enumerate(theta):
            for j in vertices:
                accumulate(y_i, polynomials[first + m][i][j], times(x[j], matrix))
        y.append(y_i)
    return y


def spiral(x: Matrix, graph: Lists, theta: list[Matrix], b: Vector, dilation: int, center: bool) -> Matrix:
    """γ of the concatenated S(i, M), one linear layer (†: moved one step down the spiral); -1 is the mesh's end."""
    y = []
    for i in range(graph.num_vertices):
        sequence = graph.spirals[i] if center else graph.spirals[i][1:]
        places = [sequence[m * dilation] for m in range(len(theta))]
        concatenated = [value for j in places for value in (x[j] if j >= 0 else [0.0] * len(theta[0]))]
        stacked = [row for matrix in theta for row in matrix]
        y.append([o + c for o, c in zip(times(concatenated, stacked), b, strict=True)])
    return y


def cox_de_boor(n: int, degree: int, u: float, knot_spacing: float, first_knot: float) -> float:
    """B-spline n over the knots t_n = first_knot + n · knot_spacing, by its recursive definition."""

    def t(k: int) -> float:
        return first_knot + k * knot_spacing

    if degree == 0:
        return float(t(n) <= u < t(n + 1))
    rising = (u - t(n)) / (t(n + degree) - t(n))
    falling = (t(n + degree + 1) - u) / (t(n + degree + 1) - t(n + 1))
    return rising * cox_de_boor(n, degree - 1, u, knot_spacing, first_knot) + falling * cox_de_boor(
        n + 1, degree - 1, u, knot_spacing, first_knot
    )


def bspline(k: int, u: float, size: int, degree: int, closed: bool) -> float:
    """Spline k of ``size``: over size - degree spans of [0, 1], or over size spans of a circle; one is constant."""
    if size == 1:
        return 1.0
    spans = size if closed else size - degree
    turns = range(degree + 2) if closed else range(1)
    return sum(cox_de_boor(k + turn * size, degree, u, 1 / spans, -degree / spans) for turn in turns)


def spline(
    x: Matrix,
    graph: Lists,
    theta: list[Matrix],
    b: Vector,
    sizes: tuple[int, ...],
    degree: int,
    closed: tuple[bool, ...],
) -> Matrix:
    """1/|N(i)| Σ_j x_j g_Θ(u_ij), g_Θ on the tensor product of B-splines; the last dimension runs fastest."""
    assert len(theta) == prod(sizes)
    y = []
    for i in range(graph.num_vertices):
        y_i = list(b)
        for j, u in graph.into(i):
            for m in range(len(theta)):
                weight, rest = 1.0, m
                for d in reversed(range(len(sizes))):
                    rest, k = divmod(rest, sizes[d])
                    weight *= bspline(k, u[d], sizes[d], degree, closed[d])
                accumulate(y_i, weight / len(graph.into(i)), times(x[j], theta[m]))
        y.append(y_i)
    return y
