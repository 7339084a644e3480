"""Pages that a person opens during or after a run: self-contained HTML, see `python -m verl_ext.report --help`."""
