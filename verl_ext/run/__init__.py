"""A run folder and its files: metrics, totals, checkpoints, summary, progress. May import `core`."""
