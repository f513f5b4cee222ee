"""Raw records -> one result row, its schema, and gates on rows. Knows nothing of how rows are stored or
drawn."""
