"""Rules over the catalogue: what contradicts, what is very likely wrong, what cannot be checked, and
where."""
