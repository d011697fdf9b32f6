"""Implements what rueda.tensorflow and the Keras front ends offer."""
