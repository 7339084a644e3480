"""Shared code of the demos' small models: tokenizer, lessons, mistakes, training."""
