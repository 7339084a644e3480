"""Statistics of scored samples, pure: pass@k, maj@k, intervals, and the report."""
