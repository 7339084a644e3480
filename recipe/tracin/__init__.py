"""TracIn: trains on the rollouts whose gradient agrees with a validation set's. May import `verl_ext`, and no other
recipe."""
