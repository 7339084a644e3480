"""The algorithm, pure: which samples the update sees, and what they are compared with. No Ray, no verl."""
