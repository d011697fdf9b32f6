// The kernels of the ops in ops.cc, for tensors in the host's memory.
#pragma once

#include <string>

namespace rueda::tensorflow {

// Registers all kernels. Returns "" or what TensorFlow said of the first that it did not take.
std::string register_kernels();

}  // namespace rueda::tensorflow
