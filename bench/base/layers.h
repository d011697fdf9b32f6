// Builds the gradient set of a network, layer by layer.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "bench/base/models.h"

namespace rueda::bench {

// Collects parameters in the order of the layers. `side` is that of a layer's output, a square of
// so many pixels.
class Layers {
 public:
  void conv(const std::string& name, int64_t in, int64_t out, int64_t height, int64_t width,
            int64_t side) {
    list_.push_back(
        {name + ".weight", {out, in, height, width}, out * in * height * width * side * side});
  }
  void conv(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t side) {
    conv(name, in, out, kernel, kernel, side);
  }
  // Adds a convolution of each channel with a kernel of its own.
  void depthwise(const std::string& name, int64_t channels, int64_t kernel, int64_t side) {
    conv(name, 1, channels, kernel, side);
  }
  void bias(const std::string& name, int64_t out) { list_.push_back({name + ".bias", {out}}); }
  void batch_norm(const std::string& name, int64_t channels) {
    list_.push_back({name + ".weight", {channels}});
    bias(name, channels);
  }
  void linear(const std::string& name, int64_t in, int64_t out) {
    list_.push_back({name + ".weight", {out, in}, out * in});
    bias(name, out);
  }
  // Adds torchvision's BasicConv2d: a convolution without bias, then batch normalisation.
  void conv_bn(const std::string& name, int64_t in, int64_t out, int64_t height, int64_t width,
               int64_t side) {
    conv(name + ".conv", in, out, height, width, side);
    batch_norm(name + ".bn", out);
  }
  void conv_bn(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t side) {
    conv_bn(name, in, out, kernel, kernel, side);
  }

  ParameterList take() { return std::move(list_); }

 private:
  ParameterList list_;
};

}  // namespace rueda::bench
