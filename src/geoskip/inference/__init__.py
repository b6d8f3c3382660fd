"""Use a trained model without its training data: apply it to files, export it, share it."""

from geoskip.inference.predictors import ImageClassifier, Matcher, MeshCoder
from geoskip.training.pretrained import from_pretrained, load, save_pretrained
from geoskip.training.trained import Trained

__all__ = ["ImageClassifier", "Matcher", "MeshCoder", "Trained", "from_pretrained", "load", "save_pretrained"]
