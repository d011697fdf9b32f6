// An empty library with the name of TensorFlow's: librueda_tensorflow.so is linked against it, so
// that the dynamic linker finds TensorFlow's functions in the library that Python has loaded. It is
// used while building, and is not installed.
