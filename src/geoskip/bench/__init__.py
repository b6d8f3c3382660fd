"""Measuring: our blocks beside PyTorch Geometric's, growth with size, and memory foretold."""

from geoskip.bench.memory import estimate_step_memory

__all__ = ["estimate_step_memory"]
