"""Benchmarks of geoskip against PyTorch Geometric: blocks, training steps, scaling. Not part of the package."""
