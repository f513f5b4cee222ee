"""Engine-neutral launching: start a role instance, wait until healthy, read its report, signal, collect,
release.

`local.py` starts process groups on this host; `engines/*` turn a role into a command line. Knows no metrics.
"""
