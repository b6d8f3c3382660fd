"""Data as one in-memory set each: CoMA, FAUST, superpixels, generated faces and bodies, a user's own folder.

Nothing is imported here: each loader is a module of its own, and only what it needs is loaded with it.
"""
