"""The paper's seven graph convolutions, and one whose filter is any radial basis network; one file each."""

from geoskip.operators.base import OPERATORS, Operator, OperatorInfo, make_operator, operator_info
from geoskip.operators.cheb import ChebConv
from geoskip.operators.feast import FeaStConv
from geoskip.operators.gcn import GCNConv
from geoskip.operators.gin import GINConv
from geoskip.operators.monet import MoNetConv
from geoskip.operators.rbf import RBFConv
from geoskip.operators.spiral import SpiralConv
from geoskip.operators.spline import SplineConv

__all__ = [
    "OPERATORS",
    "ChebConv",
    "FeaStConv",
    "GCNConv",
    "GINConv",
    "MoNetConv",
    "Operator",
    "OperatorInfo",
    "RBFConv",
    "SpiralConv",
    "SplineConv",
    "make_operator",
    "operator_info",
]
