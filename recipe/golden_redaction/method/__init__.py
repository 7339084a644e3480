"""The algorithm, pure: which states are visited, and the rewards and target log-probs of their tokens. No Ray, no
verl."""
