"""What the small models of the demos share: tokenizer, lessons, mistakes, training."""
