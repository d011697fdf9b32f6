"""Calls librueda from Python. The packages rueda, rueda.torch and rueda.distributed stand on this one."""
