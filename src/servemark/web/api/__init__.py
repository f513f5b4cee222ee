"""Endpoints of the JSON interface, one module each; `registry.ROUTES` lists them, `base` says what one is."""
