// Lists the gradient sets of well-known networks: one tensor a parameter, in the order of the
// layers, with the shapes of torchvision's definitions (weights and biases; running statistics have
// no gradient).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::bench {

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;

  int64_t elements() const;
};

using ParameterList = std::vector<Parameter>;

ParameterList resnet50();  // 161 tensors
ParameterList vgg16();     // 32 tensors, without batch normalisation
// GoogLeNet with batch normalisation and both auxiliary classifiers, 187 tensors. bench/train.py
// has the network without them, 173 tensors, and calls that "googlenet-no-aux".
ParameterList googlenet_aux();
ParameterList small(int tensors);  // tensors of 1 KiB each in float32

// Returns the set named "resnet50", "vgg16", "googlenet-aux", or "small" and a number of tensors,
// as in "small1000". Returns nullopt for any other name.
std::optional<ParameterList> model_by_name(std::string_view name);
// Returns the names of the sets that are usually compared.
const std::vector<std::string>& model_names();

int64_t total_elements(const ParameterList& parameters);

}  // namespace rueda::bench
