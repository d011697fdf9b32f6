// Defines networks whose layers stand in one row, or in one row of blocks.
#include <string>

#include "bench/base/families.h"
#include "bench/base/layers.h"

namespace rueda::bench {

ParameterList resnet(const std::array<int, 4>& blocks, bool bottleneck) {
  Layers layers;
  layers.conv("conv1", 3, 64, 7, 112);
  layers.batch_norm("bn1", 64);
  const int64_t expansion = bottleneck ? 4 : 1;
  int64_t in = 64;
  int64_t before = 56;  // the side of a block's input
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const int64_t width = int64_t{64} << stage;
    const int64_t out = width * expansion;
    const int64_t side = 56 >> stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      const auto add = [&](int number, int64_t from, int64_t to, int64_t kernel, int64_t at) {
        layers.conv(name + ".conv" + std::to_string(number), from, to, kernel, at);
        layers.batch_norm(name + ".bn" + std::to_string(number), to);
      };
      if (bottleneck) {
        add(1, in, width, 1, before);
        add(2, width, width, 3, side);
        add(3, width, out, 1, side);
      } else {
        add(1, in, width, 3, side);
        add(2, width, out, 3, side);
      }
      if (block == 0 && in != out) {
        layers.conv(name + ".downsample.0", in, out, 1, side);
        layers.batch_norm(name + ".downsample.1", out);
      }
      in = out;
      before = side;
    }
  }
  layers.linear("fc", in, 1000);
  return layers.take();
}

ParameterList vgg16() {
  Layers layers;
  constexpr int64_t kPool = 0;
  constexpr int64_t kWidths[] = {64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                                 kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};
  int64_t in = 3;
  int64_t side = 224;
  int index = 0;
  for (int64_t out : kWidths) {
    if (out == kPool) {
      side /= 2;
    } else {
      const std::string name = "features." + std::to_string(index);
      layers.conv(name, in, out, 3, side);
      layers.bias(name, out);
      in = out;
      ++index;  // its ReLU has a place in the sequence, too
    }
    ++index;
  }
  layers.linear("classifier.0", 512 * 7 * 7, 4096);
  layers.linear("classifier.3", 4096, 4096);
  layers.linear("classifier.6", 4096, 1000);
  return layers.take();
}

ParameterList alexnet() {
  Layers layers;
  const auto add = [&](const char* name, int64_t in, int64_t out, int64_t kernel, int64_t side) {
    layers.conv(name, in, out, kernel, side);
    layers.bias(name, out);
  };
  add("features.0", 3, 64, 11, 55);
  add("features.3", 64, 192, 5, 27);
  add("features.6", 192, 384, 3, 13);
  add("features.8", 384, 256, 3, 13);
  add("features.10", 256, 256, 3, 13);
  layers.linear("classifier.1", 256 * 6 * 6, 4096);
  layers.linear("classifier.4", 4096, 4096);
  layers.linear("classifier.6", 4096, 1000);
  return layers.take();
}

ParameterList mobilenet1() {
  Layers layers;
  layers.conv("conv1", 3, 32, 3, 112);
  layers.batch_norm("bn1", 32);
  // Each block is a convolution of every channel by itself, and one of 1 x 1 over all of them.
  constexpr struct {
    int64_t out, side;
  } kBlocks[] = {{64, 112}, {128, 56}, {128, 56}, {256, 28}, {256, 28}, {512, 14}, {512, 14},
                 {512, 14}, {512, 14}, {512, 14}, {512, 14}, {1024, 7}, {1024, 7}};
  int64_t in = 32;
  int number = 0;
  for (const auto& [out, side] : kBlocks) {
    const std::string name = "block" + std::to_string(++number);
    layers.depthwise(name + ".depthwise", in, 3, side);
    layers.batch_norm(name + ".bn1", in);
    layers.conv(name + ".pointwise", in, out, 1, side);
    layers.batch_norm(name + ".bn2", out);
    in = out;
  }
  layers.linear("fc", in, 1000);
  return layers.take();
}

}  // namespace rueda::bench
