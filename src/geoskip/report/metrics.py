"""What tasks and figures are called on the page, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A figure of a run.

    key: its name in run records.
    heading: its name in a table.
    unit: in words short enough for an axis.
    digits: after the point.
    better: ``"lower"``, ``"higher"``, or empty where neither is.
    """

    key: str
    heading: str
    unit: str = ""
    digits: int = 3
    better: str = "lower"

    def shown(self, value: float) -> str:
        return f"{value:.{self.digits}f}"


@dataclass(frozen=True)
class Subject:
    """A task, for a reader who has not seen the paper; its metrics, the one that counts first."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


SUBJECTS = {
    "reconstruction": Subject(
        "Shape reconstruction",
        "An autoencoder squeezes each mesh into a few numbers and rebuilds it. The error is the distance of a vertex "
        "from where it should be, in millimetres, over all vertices of all test meshes.",
        (
            Metric("mean_mm", "Mean error", "mm"),
            Metric("median_mm", "Median error", "mm"),
            Metric("std_mm", "Spread over vertices", "mm"),
        ),
    ),
    "correspondence": Subject(
        "Dense correspondence",
        "Every vertex of a body is matched with the same point of a reference body. Accuracy counts exact matches; "
        "the geodesic error is the way along the surface between the match and the truth, in % of the longest way.",
        (
            Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),
            Metric("geodesic_mean_pct", "Mean geodesic error", "% of the diameter", 2),
        ),
    ),
    "classification": Subject(
        "Digit classification",
        "An image becomes a graph of 75 superpixels; the network names the digit.",
        (Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),),
    ),
}
# What stands in for the paper's data, for a reader who sees its figures beside ours.
DATA = {
    "faces": "These faces are generated, the paper's are scans (CoMA): compare the order of methods, not errors.",
    "bodies": "These bodies are generated, the paper's are scans (FAUST): compare the order of methods.",
    "superpixels": "The digits are MNIST's as in the paper, cut into superpixels anew.",
}
SCHEDULES = {
    "full": "trained as long as in the paper",
    "short": "a shorter training than the paper's, the same for every row",
    "smoke": "a few steps only: these figures show that it runs, and nothing else",
}


def subject_of(task: str, keys: list[str]) -> Subject:
    """What is known of a task, and a plain entry for every further metric."""
    known = SUBJECTS.get(task, Subject(task.capitalize() or "Runs", "", ()))
    named = {metric.key for metric in known.metrics}
    further = tuple(Metric(key, key.replace("_", " "), "", 4, "") for key in keys if key not in named)
    return Subject(known.title, known.text, tuple(m for m in known.metrics if m.key in keys) + further)
