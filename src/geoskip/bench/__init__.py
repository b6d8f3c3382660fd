"""Measuring: our blocks beside PyTorch Geometric's, growth with size, and memory foretold."""

from geoskip.bench.memory import estimate_step_memory
from geoskip.bench.model_memory import estimate_autoencoder_memory
from geoskip.bench.network_memory import Room, estimate_training_memory, room_of

__all__ = ["Room", "estimate_autoencoder_memory", "estimate_step_memory", "estimate_training_memory", "room_of"]
