"""Workloads: formats of recorded traces, the seeded generator, and the text that stands for hashed blocks.

A workload holds ids and token counts, never text: text is made when a request is sent (`text.TextMaker`).
Knows nothing of HTTP.
"""
