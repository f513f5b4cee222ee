"""What can be known before a run: cache hits of a trace by simulation, speed from measured points with a stated
interval, and "cannot say" otherwise.

Returns verdicts and decides nothing; knows nothing of launching. `types` holds what its parts hand to each other.
"""
