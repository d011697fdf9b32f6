"""librueda from Python: what rueda, rueda.torch and rueda.distributed stand on."""
