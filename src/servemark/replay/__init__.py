"""The client: sessions, clock, HTTP and SSE, raw request records. The only HTTP client that measures
anything.

Knows nothing of GPUs or YAML.
"""
