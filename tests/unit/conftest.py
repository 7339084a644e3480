"""Makes this folder's helpers importable for the slow tests, too: pytest puts the folder of a conftest on the path."""
