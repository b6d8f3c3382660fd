"""The paper's experiments: each row of its tables, with the figures that it printed."""
