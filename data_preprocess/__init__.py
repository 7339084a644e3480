"""One command per data set; the top floor. May import recipes and `verl_ext`; nothing imports it."""
