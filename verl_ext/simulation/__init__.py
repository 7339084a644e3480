"""Models of what takes time on a cluster. Pure."""
