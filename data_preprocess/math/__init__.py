"""Shared code of the mathematics data sets: reading, cleaning, overlap with test sets, the command."""
