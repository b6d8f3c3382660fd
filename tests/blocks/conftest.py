"""PyTorch Geometric's import runs torch.jit.script, which torch deprecates: let that warning pass, once, here."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn

assert torch_geometric.nn.conv
