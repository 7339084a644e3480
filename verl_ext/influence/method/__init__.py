"""Influence scores, pure PyTorch and numpy: inner products of gradients, and the loss's denominators. No verl."""
