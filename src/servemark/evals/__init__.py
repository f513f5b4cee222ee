"""Accuracy beside speed: tasks that are asked of the same endpoint, and what became of every answer.

Sends through a callable that it is given, so it owns no HTTP client and knows nothing of launching.
"""
