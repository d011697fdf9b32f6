"""Prints how many bytes of the GPU are free."""

from device_support import Gpu

print(Gpu().free_bytes())
