"""The paper's three networks, for any operator and any skip."""

from geoskip.models.autoencoder import MeshAutoencoder
from geoskip.models.classifier import GraphClassifier
from geoskip.models.correspondence import CorrespondenceNet

__all__ = ["CorrespondenceNet", "GraphClassifier", "MeshAutoencoder"]
