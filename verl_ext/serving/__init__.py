"""The data plane, queries to the rollout servers, and their monitoring. May import `core` and `cluster`."""
