"""Holds the parts of bench/train.py, which measures training steps."""

KINDS_OF_PICTURES = ("synthetic", "digits", "photographs")
