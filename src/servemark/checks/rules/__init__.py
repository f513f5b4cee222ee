"""One file a family, one function a rule. A file put here is found by `registry.all_rules`."""
