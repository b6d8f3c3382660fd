"""One training step of each task, ours beside the same network built from PyTorch Geometric's layers."""
