#include "bench/base/models.h"

#include <charconv>
#include <system_error>

namespace rueda::bench {
namespace {

void conv(ParameterList& list, const std::string& name, int64_t in, int64_t out, int64_t kernel) {
  list.push_back({name + ".weight", {out, in, kernel, kernel}});
}

void batch_norm(ParameterList& list, const std::string& name, int64_t channels) {
  list.push_back({name + ".weight", {channels}});
  list.push_back({name + ".bias", {channels}});
}

void linear(ParameterList& list, const std::string& name, int64_t in, int64_t out) {
  list.push_back({name + ".weight", {out, in}});
  list.push_back({name + ".bias", {out}});
}

// Adds GoogLeNet's BasicConv2d: a convolution without bias, then batch normalisation.
void conv_bn(ParameterList& list, const std::string& name, int64_t in, int64_t out,
             int64_t kernel) {
  conv(list, name + ".conv", in, out, kernel);
  batch_norm(list, name + ".bn", out);
}

struct Inception {
  const char* name;
  int64_t in, c1x1, c3x3_reduce, c3x3, c5x5_reduce, c5x5, pool;
};

void inception(ParameterList& list, const Inception& block) {
  const std::string name = block.name;
  conv_bn(list, name + ".branch1", block.in, block.c1x1, 1);
  conv_bn(list, name + ".branch2.0", block.in, block.c3x3_reduce, 1);
  conv_bn(list, name + ".branch2.1", block.c3x3_reduce, block.c3x3, 3);
  conv_bn(list, name + ".branch3.0", block.in, block.c5x5_reduce, 1);
  // torchvision's "5x5" branch has kernels of 3, as the TensorFlow model has from which it took the
  // weights.
  conv_bn(list, name + ".branch3.1", block.c5x5_reduce, block.c5x5, 3);
  conv_bn(list, name + ".branch4.1", block.in, block.pool, 1);
}

void auxiliary(ParameterList& list, const std::string& name, int64_t in) {
  conv_bn(list, name + ".conv", in, 128, 1);
  linear(list, name + ".fc1", 2048, 1024);
  linear(list, name + ".fc2", 1024, 1000);
}

}  // namespace

int64_t Parameter::elements() const {
  int64_t count = 1;
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

int64_t total_elements(const ParameterList& parameters) {
  int64_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.elements();
  return total;
}

ParameterList resnet50() {
  ParameterList list;
  conv(list, "conv1", 3, 64, 7);
  batch_norm(list, "bn1", 64);
  constexpr int kBlocks[] = {3, 4, 6, 3};
  constexpr int64_t kExpansion = 4;
  int64_t in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    const int64_t out = width * kExpansion;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      conv(list, name + ".conv1", in, width, 1);
      batch_norm(list, name + ".bn1", width);
      conv(list, name + ".conv2", width, width, 3);
      batch_norm(list, name + ".bn2", width);
      conv(list, name + ".conv3", width, out, 1);
      batch_norm(list, name + ".bn3", out);
      if (block == 0) {
        conv(list, name + ".downsample.0", in, out, 1);
        batch_norm(list, name + ".downsample.1", out);
      }
      in = out;
    }
  }
  linear(list, "fc", in, 1000);
  return list;
}

ParameterList vgg16() {
  ParameterList list;
  constexpr int64_t kPool = 0;
  constexpr int64_t kLayers[] = {64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                                 kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};
  int64_t in = 3;
  int index = 0;
  for (int64_t out : kLayers) {
    if (out != kPool) {
      const std::string name = "features." + std::to_string(index);
      conv(list, name, in, out, 3);
      list.push_back({name + ".bias", {out}});
      in = out;
      ++index;  // its ReLU has a place in the sequence, too
    }
    ++index;
  }
  linear(list, "classifier.0", 512 * 7 * 7, 4096);
  linear(list, "classifier.3", 4096, 4096);
  linear(list, "classifier.6", 4096, 1000);
  return list;
}

ParameterList googlenet_aux() {
  ParameterList list;
  conv_bn(list, "conv1", 3, 64, 7);
  conv_bn(list, "conv2", 64, 64, 1);
  conv_bn(list, "conv3", 64, 192, 3);
  constexpr Inception kBlocks[] = {
      {"inception3a", 192, 64, 96, 128, 16, 32, 32},
      {"inception3b", 256, 128, 128, 192, 32, 96, 64},
      {"inception4a", 480, 192, 96, 208, 16, 48, 64},
      {"inception4b", 512, 160, 112, 224, 24, 64, 64},
      {"inception4c", 512, 128, 128, 256, 24, 64, 64},
      {"inception4d", 512, 112, 144, 288, 32, 64, 64},
      {"inception4e", 528, 256, 160, 320, 32, 128, 128},
      {"inception5a", 832, 256, 160, 320, 32, 128, 128},
      {"inception5b", 832, 384, 192, 384, 48, 128, 128},
  };
  for (const Inception& block : kBlocks) inception(list, block);
  auxiliary(list, "aux1", 512);
  auxiliary(list, "aux2", 528);
  linear(list, "fc", 1024, 1000);
  return list;
}

ParameterList small(int tensors) {
  ParameterList list;
  for (int i = 0; i < tensors; ++i) list.push_back({"small." + std::to_string(i), {256}});
  return list;
}

std::optional<ParameterList> model_by_name(std::string_view name) {
  if (name == "resnet50") return resnet50();
  if (name == "vgg16") return vgg16();
  if (name == "googlenet-aux") return googlenet_aux();
  constexpr std::string_view kSmall = "small";
  constexpr int kMaxTensors = 100'000;
  if (!name.starts_with(kSmall)) return std::nullopt;
  name.remove_prefix(kSmall.size());
  int tensors = 0;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), tensors);
  if (error != std::errc() || rest != name.data() + name.size()) return std::nullopt;
  if (tensors < 1 || tensors > kMaxTensors) return std::nullopt;
  return small(tensors);
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"resnet50", "vgg16", "googlenet-aux", "small1000"};
  return names;
}

}  // namespace rueda::bench
