"""Code of the processes that isolate a program: the trainer imports nothing from here, except in tests."""
