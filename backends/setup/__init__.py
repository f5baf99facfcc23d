"""The steps of the tutorial: whether each is done, which commands are missing, and running them."""
