// Describes the networks with which Horovod is simulated: the gradients of each
// (bench/base/models.h), how fast a GPU trains it (bench/base/compute.h), and how much of its step
// suffers when the process's CPU threads are slowed down.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::scale {

struct Network {
  std::string name;
  std::vector<int64_t> tensors;  // elements of each float32 gradient, in the order of the layers
  // The speed of one NVIDIA P100 in training, at this batch.
  double images_per_s = 0;
  int batch = 64;
  // The load-imbalance-susceptible window: the share of a step in which graph scheduling and the
  // input pipeline must not be late.
  double lis = 0;

  int64_t bytes() const;
};

// Returns resnet18|34|50|101|152, googlenet-aux, inception3, vgg16 or alexnet, or null for any
// other name.
const Network* find_network(std::string_view name);
const std::vector<Network>& networks();

}  // namespace rueda::scale
