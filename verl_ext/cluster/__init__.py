"""Nodes of a Ray cluster, the processes and shared memory of a run on them, and their clean-up. May import `core`."""
