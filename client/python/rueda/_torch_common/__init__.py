"""Gives librueda PyTorch's tensors. rueda.torch and rueda.distributed share this package."""
