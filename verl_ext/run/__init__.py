"""A run folder and what is written to it: metrics, totals, checkpoints, summary, progress. May import `core`."""
