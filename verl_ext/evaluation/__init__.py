"""Pass rates of a model: sampling, pass@k, maj@k, intervals, report, and the command. May import `core` and `data`."""
