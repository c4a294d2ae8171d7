"""A whole deployment in one process, under a clock of its own, with faults that a seed chooses: `archipel torture`."""
