"""Turns run records into tables, charts, pictures and one HTML page. It reads records only, and trains nothing."""
