"""Letting arms in: the page that a reviewer reads, its checklist and sign-off, and new arms made from old ones."""
