"""One update of the weights: as it reads, or captured once and replayed."""

from geoskip.training.steps.captured import StaticStep, record_graph
from geoskip.training.steps.learner import Learner
from geoskip.training.steps.plain import PlainStep, Step

__all__ = ["Learner", "PlainStep", "StaticStep", "Step", "make_step", "record_graph"]


def make_step(learner: Learner, capture: bool = True) -> Step:
    """On a single CUDA device a captured step, unless told otherwise; elsewhere the plain one.

    Between several devices gradients are exchanged in every step, which is not captured.
    """
    if capture and learner.device.type == "cuda" and learner.group.size == 1:
        return StaticStep(learner, record_graph)
    return PlainStep(learner)
