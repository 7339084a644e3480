"""Measures whether training helped on untrained states: states, programs, tables. Pure."""
