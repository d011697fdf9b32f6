"""Holds the parts of compare.py and growth.py: how they measure, and the sides that they measure."""
