"""The data plane; what is asked of the rollout servers, and how they are watched. May import `core` and `cluster`."""
