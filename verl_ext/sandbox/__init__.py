"""Runs untrusted Python, safely and fast: see README.md in this folder for the threat model and the layers."""
