// Registers ops and kernels when TensorFlow loads librueda_tensorflow.so, and holds what Python
// calls in it by ctypes.
#include <string>

#include "client/include/rueda/rueda.h"
#include "client/tensorflow/kernels.h"
#include "client/tensorflow/ops.h"
#include "client/tensorflow/run.h"

namespace rueda::tensorflow {
namespace {

std::string register_all() {
  std::string problem = register_ops();
  return problem.empty() ? register_kernels() : problem;
}

// TensorFlow asks what ops have come when the dynamic linker has run this.
const std::string g_problem = register_all();

}  // namespace
}  // namespace rueda::tensorflow

extern "C" {

// Returns "" or what TensorFlow said of the first op or kernel that it did not take.
RUEDA_API const char* rueda_tensorflow_problem() { return rueda::tensorflow::g_problem.c_str(); }

// Says that the program is about to end: nothing is called back any more, and runs of kernels that
// are in flight never end.
RUEDA_API void rueda_tensorflow_take_back() { rueda::tensorflow::take_back_callbacks(); }
}
