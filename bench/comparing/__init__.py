"""The parts of compare.py and growth.py: what they measure with, and the sides that they measure."""
