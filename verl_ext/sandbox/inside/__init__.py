"""What runs in the processes that a program is locked into: nothing here is imported by the trainer, but for tests."""
