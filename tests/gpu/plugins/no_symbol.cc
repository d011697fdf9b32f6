// A library that is not a plugin.
extern "C" __attribute__((visibility("default"))) int rueda_is_elsewhere() { return 1; }
