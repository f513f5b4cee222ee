"""The command line: one thin module a verb. Verbs are imported only when they are used."""
