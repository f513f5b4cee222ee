"""The page and its JSON: what `analysis` returns, served over HTTP to a browser. No arithmetic here."""
