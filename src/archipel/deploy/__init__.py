"""A federation of processes over a network: what `archipel up`, `archipel node` and `archipel keys` do."""
