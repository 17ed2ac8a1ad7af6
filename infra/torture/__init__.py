"""Faults against the real thing: every acknowledged event is accounted for, whatever was killed, cut or frozen."""
