"""What the mathematics data sets share: reading, cleaning, overlap with test sets, the command."""
