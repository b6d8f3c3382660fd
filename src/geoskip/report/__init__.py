"""Reads run records only: tables, figures, pictures, one HTML page."""
