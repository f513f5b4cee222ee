"""One module a chart: pure functions from a small description, which holds finished words, to Markup."""
