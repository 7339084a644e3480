"""verl chooses its platform when it is first used: the tests that import its workers run on the CPU platform."""

import os

os.environ.setdefault("VERL_PLATFORM", "cpu")
