"""GPUs of this host measured: each probe a process of its own, compared with what the same type has reached."""
