"""One SQLite file of result rows: source files, raw rows, lines, points, runs; numbered migrations.

The folders under runs/ are the truth, so the file may be deleted at any time and built again. Knows nothing
of HTML, and of a row only what its keys need.
"""
