"""The update, pure PyTorch: forward, loss, and the change of each tensor. No Ray, no verl."""
