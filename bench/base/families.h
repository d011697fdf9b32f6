// Declares the networks that models.cc looks up by name.
#pragma once

#include <array>

#include "bench/base/models.h"

namespace rueda::bench {

// Blocks are those of the four stages. A bottleneck has three convolutions a block, other blocks
// have two.
ParameterList resnet(const std::array<int, 4>& blocks, bool bottleneck);
ParameterList vgg16();
ParameterList alexnet();
ParameterList googlenet(bool has_auxiliaries);
ParameterList inception3();
ParameterList mobilenet1();
ParameterList nasnet_large();

}  // namespace rueda::bench
