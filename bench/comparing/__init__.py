"""The parts of compare.py: what it measures with, and the sides that it measures."""
