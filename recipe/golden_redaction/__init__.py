"""Golden redaction for ARC: trains single tokens of golden solutions. May import `verl_ext`, and no other recipe."""
