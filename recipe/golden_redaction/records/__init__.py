"""Training entries as JSON lines: schema, writing and reading. Pure."""
