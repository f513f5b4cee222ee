"""servemark: from one reviewed YAML entry about an LLM-serving deployment to a point on a Pareto front.

The rooms, in the order in which data (and the permission to import) flows, are listed in docs/architecture.md.
"""

__version__ = "0.1.0"
