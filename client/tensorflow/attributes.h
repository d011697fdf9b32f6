// Reads the attributes of an op when a kernel of it is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/include/rueda/rueda.h"
#include "client/tensorflow/tf_abi.h"

namespace rueda::tensorflow {

// It lives while one kernel is made. The first attribute that cannot be read fails the making; what
// is read after that is empty.
class Attributes {
 public:
  explicit Attributes(TF_OpKernelConstruction* context);
  ~Attributes();
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  int64_t integer(const char* attribute);
  std::string string(const char* attribute);
  std::vector<std::string> strings(const char* attribute);
  // Returns the options in `reduce_op`, and in `prescale` and `postscale`, which are the bits of
  // doubles: TensorFlow's attributes have floats alone.
  rueda_reduce_options reduce_options();

  // Returns whether all could be read. Otherwise TensorFlow has been told.
  bool finish();

 private:
  bool is_readable() const;
  double real(const char* attribute);

  TF_OpKernelConstruction* context_;
  TF_Status* status_;
};

}  // namespace rueda::tensorflow
