"""Fronts, histograms, findings, and the plain value that a report draws: pure functions over rows and
records.

Knows nothing of SQL or HTML. Whatever a page, a terminal or an API shows is computed here once.
"""
