"""Whether training helped states that it did not train: states, programs, tables. Pure."""
