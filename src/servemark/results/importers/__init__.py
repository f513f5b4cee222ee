"""Importers: bytes of another tool's result file -> points. One module a format; knows nothing of the store.

An importer is asked whether a file is its own by content, never by name alone, and then maps it row by row from a stream.
Mapping is pure and versioned, so that the store can map the kept bytes again after a mapping has been mended.
"""
