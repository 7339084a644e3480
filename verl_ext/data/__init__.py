"""Parquet schema, row sources, ARC tasks, prompt formats and data checks. May import `core`."""
