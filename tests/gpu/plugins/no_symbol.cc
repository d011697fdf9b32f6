// A library that is no plugin.
extern "C" __attribute__((visibility("default"))) int rueda_is_elsewhere() { return 1; }
