// Defines well-known networks, once for every bench and the simulator: the gradients of each (one
// tensor a parameter, in the order of the layers, with the shapes of the published definitions;
// running statistics have no gradient), and how many multiply-adds each layer takes.
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
  // Of the forward pass of one image through the convolution or product whose weight this is; 0 for
  // biases and for batch normalisation.
  int64_t multiply_adds = 0;

  int64_t elements() const;
};

using ParameterList = std::vector<Parameter>;

// Returns the set of one of the names of network_names(), or "small" and a number of tensors of
// 1 KiB each, as in "small1000". Returns nullopt for any other name.
//
//  resnet18|34|50|101|152   He et al. 2016, 224 x 224 pixels
//  googlenet-aux            Szegedy et al. 2015 with batch normalisation and both auxiliary
//                           classifiers, 187 tensors; googlenet-no-aux: without them, 173 tensors
//  inception3               Szegedy et al. 2016, 299 x 299 pixels, without its auxiliary classifier
//  vgg16                    Simonyan and Zisserman 2015, without batch normalisation
//  alexnet                  Krizhevsky 2014, "One weird trick"
//  mobilenet1               Howard et al. 2017, width 1, 224 x 224 pixels
//  nasnet-large             Zoph et al. 2018, NASNet-A (6 @ 4032), 331 x 331 pixels, without its
//                           auxiliary classifier
//
// Names of parameters are torchvision's where torchvision has the network.
std::optional<ParameterList> model_by_name(std::string_view name);
const std::vector<std::string>& network_names();
// Returns the names of the sets that are usually compared.
const std::vector<std::string>& model_names();

int64_t total_elements(const ParameterList& parameters);
int64_t total_multiply_adds(const ParameterList& parameters);

// Returns when each gradient is ready, as shares of a step in the order of the list. A third of the
// step is the forward pass; the backward pass goes from the last layer to the first, and spends on
// each what its multiply-adds are of all.
std::vector<double> ready_shares(const ParameterList& parameters);

}  // namespace rueda::bench
