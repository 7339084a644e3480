"""What can be known of a run before Ray starts, beyond the recipe's own settings and its data: `checks.py` runs it all.

Each module asks about one thing and returns problems in plain sentences. May import what `launch` may.
"""
