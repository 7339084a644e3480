"""The update, pure PyTorch: forward, loss, and what moved in each tensor. No Ray, no verl."""
