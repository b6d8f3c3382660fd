"""The one loop that trains every model: configuration, tasks, steps, checkpoints, runs.

Nothing is imported here, so that a configuration can be read and an error told without loading torch.
"""
