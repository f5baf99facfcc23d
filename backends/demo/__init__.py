"""A trainer and a text server of our own: a tiny GPT on the CPU. Started as programs, imported by nobody."""
