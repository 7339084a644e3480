"""verl's trainer, made of parts (`parts.py`). May import `core`, `run`, `cluster`, `serving` and `cpu`."""
