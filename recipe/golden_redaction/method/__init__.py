"""The algorithm, pure: which states are visited, what their tokens earn, where their log-probs are to move. No Ray, no
verl."""
