"""Implements what rueda.keras and rueda.tensorflow.keras have in common: optimizers, callbacks, values. It is told which Keras."""
