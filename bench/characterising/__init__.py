"""Holds the parts of bench/characterise.py, which makes the papers' figures again on daemons of this machine."""
