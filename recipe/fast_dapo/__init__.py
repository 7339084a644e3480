"""Fast DAPO: two-phase curriculum sampling. May import `verl_ext`, and no other recipe."""
