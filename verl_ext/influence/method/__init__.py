"""Influence scores, pure PyTorch and numpy: inner products of gradients, and what a loss is divided by. No verl."""
