"""Exact arithmetic of memory: weights, KV bytes, pools, host DRAM, huge pages, registration limits. No YAML of its own."""
