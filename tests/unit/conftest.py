"""Makes this folder's helpers importable for the slow tests as well: pytest puts a conftest's folder on the path."""
