"""Arms -> points -> ordered work. Knows nothing of clusters' commands."""
