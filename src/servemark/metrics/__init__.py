"""Every metric once: id, unit, which way is better, formula, percentile rule, what it needs.

Knows nothing of where values come from: formulas take plain numbers or anything shaped like `RequestTimes`.
"""
