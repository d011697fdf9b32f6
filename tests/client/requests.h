// Makes TensorRequests of float32 in a short way.
#pragma once

#include <gtest/gtest.h>

#include "client/src/request/tensor.h"

namespace rueda::client {

inline rueda_tensor flat_tensor(const char* name, const float* in, float* out,
                                const int64_t* elements) {
  return {name, in, out, elements, 1, RUEDA_FLOAT32};
}

inline TensorRequest allreduce_of(const char* name, const float* in, float* out, int64_t elements,
                                  double prescale) {
  rueda_tensor tensor = flat_tensor(name, in, out, &elements);
  rueda_reduce_options options{sizeof(options), RUEDA_SUM, prescale, 1.0, 0};
  Result<TensorRequest> request = check_allreduce(&tensor, &options, "", 0);
  EXPECT_TRUE(request.is_ok()) << request.status().message();
  return std::move(request).value();
}

inline TensorRequest broadcast_of(const char* name, const float* in, float* out, int64_t elements,
                                  int root, int rank) {
  rueda_tensor tensor = flat_tensor(name, in, out, &elements);
  Result<TensorRequest> request = check_broadcast(&tensor, root, rank, 2);
  EXPECT_TRUE(request.is_ok()) << request.status().message();
  return std::move(request).value();
}

}  // namespace rueda::client
