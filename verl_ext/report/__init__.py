"""Pages to inspect a run during or after training: self-contained HTML, see `python -m verl_ext.report --help`."""
