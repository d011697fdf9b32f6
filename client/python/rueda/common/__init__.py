"""What horovod.common has of exceptions and process sets."""
