"""The evidence for the paper: its tables and figures as recipes, their statistics and claims, and the analyses."""
