"""Reading suites: master entries, recipes, clusters -> typed, immutable values with their source positions.

Also owns the identities (point id, series id) made from those values. Knows nothing of rules or launching.
"""
