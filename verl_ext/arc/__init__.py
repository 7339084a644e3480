"""ARC for language models: prompts, golden solutions (`golden/`), their form, and the checks that run them.

May import `core`, `data` and `sandbox`.
"""
