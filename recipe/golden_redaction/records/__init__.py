"""Training entries as JSON lines: their schema, and how they are written and read. Pure."""
