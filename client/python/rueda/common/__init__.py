"""Offers horovod.common's names of exceptions and process sets."""
