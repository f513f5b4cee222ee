"""Engine adapters: each turns a role into argv and env, and says how its server shows health, identity and
counters.
"""
