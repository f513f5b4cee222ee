"""What every room may use: expected errors, messages in two languages, atomic files, the home folder.

Owns nothing about serving. Imports no other room.
"""
