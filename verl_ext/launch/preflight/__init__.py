"""Checks of a run before Ray starts, beyond the recipe's settings and data; `checks.py` runs them all.

Each module checks one topic and returns problems in plain sentences. May import the same modules as `launch`.
"""
