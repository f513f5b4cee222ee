"""Facts of a host, real probes of its memory and store, and a verdict against what an arm needs."""
