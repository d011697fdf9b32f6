"""Training steps, for bench/train.py."""

KINDS_OF_PICTURES = ("synthetic", "digits", "photographs")
