"""The algorithm, pure: which samples the update uses, and what they are compared with. No Ray, no verl."""
