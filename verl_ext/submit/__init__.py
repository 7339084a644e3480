"""Submit a run to a cluster; see `__main__.py`."""
