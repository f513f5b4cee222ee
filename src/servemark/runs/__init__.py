"""One run's phases from allocate to stop, and what a run folder's state is.

The only room that sees launch, replay, evals, results and store together. Draws nothing.
"""
