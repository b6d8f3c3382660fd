"""Trained models at work on a user's own files, without the data they were trained on."""

from geoskip.training.inference.classifying import ImageClassifier
from geoskip.training.inference.coding import MeshCoder
from geoskip.training.inference.matching import Matcher
from geoskip.training.inference.opening import open_trained

__all__ = ["ImageClassifier", "Matcher", "MeshCoder", "open_trained"]
