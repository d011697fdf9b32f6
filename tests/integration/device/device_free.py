"""Prints how many bytes of the GPU nobody has."""

from device_support import Gpu

print(Gpu().free_bytes())
