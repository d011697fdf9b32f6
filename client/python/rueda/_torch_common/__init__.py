"""PyTorch's tensors as librueda reads them: what rueda.torch and rueda.distributed share."""
