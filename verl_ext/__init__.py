"""verl-signal's extensions of verl: the CPU backend, the trainer's seams, rewards and metrics."""
