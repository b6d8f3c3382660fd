"""What the skips learn, and what they change: parts of blocks, smoothness of kernels, smoothing by depth, WL power."""

from geoskip.analysis.colours import refine, told_apart
from geoskip.analysis.depth import depth_curve, depth_curves, expected_frequency
from geoskip.analysis.dirichlet import dirichlet_energy, effective_rank, mean_frequency
from geoskip.analysis.grams import Grams, Roughness, basis_roughness, filter_roughness
from geoskip.analysis.pairs import GraphPair, graph_pairs
from geoskip.analysis.power import PowerRow, RandomNetwork, collisions, power_table
from geoskip.analysis.smoothness import LayerSmoothness, kernel_grams, model_smoothness, spectrum

__all__ = [
    "Grams",
    "GraphPair",
    "LayerSmoothness",
    "PowerRow",
    "RandomNetwork",
    "Roughness",
    "basis_roughness",
    "collisions",
    "depth_curve",
    "depth_curves",
    "dirichlet_energy",
    "effective_rank",
    "expected_frequency",
    "filter_roughness",
    "graph_pairs",
    "kernel_grams",
    "mean_frequency",
    "model_smoothness",
    "power_table",
    "refine",
    "spectrum",
    "told_apart",
]
