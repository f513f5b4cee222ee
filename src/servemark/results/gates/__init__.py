"""Gates: what a result must satisfy before it may stand on a front. One function a gate; pure; judges points only.

A gate says ok, warning or quarantine with the numbers it looked at, or that it does not apply and why. Nothing is thrown
away: a quarantined point is kept and shown on request.
"""
