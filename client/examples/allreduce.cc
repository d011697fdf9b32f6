// Averages a vector over all ranks: ruedarun -np 4 rueda_example_allreduce
#include <cstdio>

#include <rueda/rueda.hpp>

int main() try {
  rueda::Context context;

  // The daemon reads and writes this memory where it is. Any other memory works too, with a copy.
  rueda::Buffer<float> gradient(1 << 20);
  for (float& value : gradient) value = static_cast<float>(context.rank());

  // Starts the operation; the program could compute the next gradient now.
  rueda::Handle handle = rueda::allreduce_async("gradient", gradient, rueda::Op::kAverage);
  rueda_result result = handle.wait();

  float expected = static_cast<float>(context.size() - 1) / 2;
  std::printf("rank %d of %d on node %s: average of %u ranks is %g, expected %g\n", context.rank(),
              context.size(), context.node_id().c_str(), result.contributors, gradient[0],
              expected);
  return gradient[0] == expected ? 0 : 1;
} catch (const rueda::Error& error) {
  std::fprintf(stderr, "%s: %s\n", rueda_error_name(error.code()), error.what());
  return 1;
}
