"""The paper's seven graph convolutions, one file each."""

from geoskip.operators.base import Operator
from geoskip.operators.cheb import ChebConv
from geoskip.operators.feast import FeaStConv
from geoskip.operators.gcn import GCNConv
from geoskip.operators.gin import GINConv
from geoskip.operators.monet import MoNetConv
from geoskip.operators.spiral import SpiralConv
from geoskip.operators.spline import SplineConv

__all__ = [
    "ChebConv",
    "FeaStConv",
    "GCNConv",
    "GINConv",
    "MoNetConv",
    "Operator",
    "SpiralConv",
    "SplineConv",
]
