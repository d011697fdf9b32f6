// Defines the networks of Szegedy et al., which are made of blocks with parallel branches.
#include <string>

#include "bench/base/families.h"
#include "bench/base/layers.h"

namespace rueda::bench {
namespace {

struct Inception {
  const char* name;
  int64_t in, c1x1, c3x3_reduce, c3x3, c5x5_reduce, c5x5, pool, side;
};

void inception(Layers& layers, const Inception& block) {
  const std::string name = block.name;
  layers.conv_bn(name + ".branch1", block.in, block.c1x1, 1, block.side);
  layers.conv_bn(name + ".branch2.0", block.in, block.c3x3_reduce, 1, block.side);
  layers.conv_bn(name + ".branch2.1", block.c3x3_reduce, block.c3x3, 3, block.side);
  layers.conv_bn(name + ".branch3.0", block.in, block.c5x5_reduce, 1, block.side);
  // torchvision's "5x5" branch has kernels of 3, as the TensorFlow model has from which it took the
  // weights.
  layers.conv_bn(name + ".branch3.1", block.c5x5_reduce, block.c5x5, 3, block.side);
  layers.conv_bn(name + ".branch4.1", block.in, block.pool, 1, block.side);
}

void auxiliary(Layers& layers, const std::string& name, int64_t in) {
  layers.conv_bn(name + ".conv", in, 128, 1, 4);
  layers.linear(name + ".fc1", 2048, 1024);
  layers.linear(name + ".fc2", 1024, 1000);
}

void inception_a(Layers& layers, const std::string& name, int64_t in, int64_t pool) {
  constexpr int64_t kSide = 35;
  layers.conv_bn(name + ".branch1x1", in, 64, 1, kSide);
  layers.conv_bn(name + ".branch5x5_1", in, 48, 1, kSide);
  layers.conv_bn(name + ".branch5x5_2", 48, 64, 5, kSide);
  layers.conv_bn(name + ".branch3x3dbl_1", in, 64, 1, kSide);
  layers.conv_bn(name + ".branch3x3dbl_2", 64, 96, 3, kSide);
  layers.conv_bn(name + ".branch3x3dbl_3", 96, 96, 3, kSide);
  layers.conv_bn(name + ".branch_pool", in, pool, 1, kSide);
}

void inception_c(Layers& layers, const std::string& name, int64_t c) {
  constexpr int64_t kSide = 17;
  layers.conv_bn(name + ".branch1x1", 768, 192, 1, kSide);
  layers.conv_bn(name + ".branch7x7_1", 768, c, 1, kSide);
  layers.conv_bn(name + ".branch7x7_2", c, c, 1, 7, kSide);
  layers.conv_bn(name + ".branch7x7_3", c, 192, 7, 1, kSide);
  layers.conv_bn(name + ".branch7x7dbl_1", 768, c, 1, kSide);
  layers.conv_bn(name + ".branch7x7dbl_2", c, c, 7, 1, kSide);
  layers.conv_bn(name + ".branch7x7dbl_3", c, c, 1, 7, kSide);
  layers.conv_bn(name + ".branch7x7dbl_4", c, c, 7, 1, kSide);
  layers.conv_bn(name + ".branch7x7dbl_5", c, 192, 1, 7, kSide);
  layers.conv_bn(name + ".branch_pool", 768, 192, 1, kSide);
}

void inception_e(Layers& layers, const std::string& name, int64_t in) {
  constexpr int64_t kSide = 8;
  layers.conv_bn(name + ".branch1x1", in, 320, 1, kSide);
  layers.conv_bn(name + ".branch3x3_1", in, 384, 1, kSide);
  layers.conv_bn(name + ".branch3x3_2a", 384, 384, 1, 3, kSide);
  layers.conv_bn(name + ".branch3x3_2b", 384, 384, 3, 1, kSide);
  layers.conv_bn(name + ".branch3x3dbl_1", in, 448, 1, kSide);
  layers.conv_bn(name + ".branch3x3dbl_2", 448, 384, 3, kSide);
  layers.conv_bn(name + ".branch3x3dbl_3a", 384, 384, 1, 3, kSide);
  layers.conv_bn(name + ".branch3x3dbl_3b", 384, 384, 3, 1, kSide);
  layers.conv_bn(name + ".branch_pool", in, 192, 1, kSide);
}

}  // namespace

ParameterList googlenet(bool has_auxiliaries) {
  Layers layers;
  layers.conv_bn("conv1", 3, 64, 7, 112);
  layers.conv_bn("conv2", 64, 64, 1, 56);
  layers.conv_bn("conv3", 64, 192, 3, 56);
  constexpr Inception kBlocks[] = {
      {"inception3a", 192, 64, 96, 128, 16, 32, 32, 28},
      {"inception3b", 256, 128, 128, 192, 32, 96, 64, 28},
      {"inception4a", 480, 192, 96, 208, 16, 48, 64, 14},
      {"inception4b", 512, 160, 112, 224, 24, 64, 64, 14},
      {"inception4c", 512, 128, 128, 256, 24, 64, 64, 14},
      {"inception4d", 512, 112, 144, 288, 32, 64, 64, 14},
      {"inception4e", 528, 256, 160, 320, 32, 128, 128, 14},
      {"inception5a", 832, 256, 160, 320, 32, 128, 128, 7},
      {"inception5b", 832, 384, 192, 384, 48, 128, 128, 7},
  };
  for (const Inception& block : kBlocks) inception(layers, block);
  if (has_auxiliaries) {
    auxiliary(layers, "aux1", 512);
    auxiliary(layers, "aux2", 528);
  }
  layers.linear("fc", 1024, 1000);
  return layers.take();
}

ParameterList inception3() {
  Layers layers;
  layers.conv_bn("Conv2d_1a_3x3", 3, 32, 3, 149);
  layers.conv_bn("Conv2d_2a_3x3", 32, 32, 3, 147);
  layers.conv_bn("Conv2d_2b_3x3", 32, 64, 3, 147);
  layers.conv_bn("Conv2d_3b_1x1", 64, 80, 1, 73);
  layers.conv_bn("Conv2d_4a_3x3", 80, 192, 3, 71);
  inception_a(layers, "Mixed_5b", 192, 32);
  inception_a(layers, "Mixed_5c", 256, 64);
  inception_a(layers, "Mixed_5d", 288, 64);
  layers.conv_bn("Mixed_6a.branch3x3", 288, 384, 3, 17);
  layers.conv_bn("Mixed_6a.branch3x3dbl_1", 288, 64, 1, 35);
  layers.conv_bn("Mixed_6a.branch3x3dbl_2", 64, 96, 3, 35);
  layers.conv_bn("Mixed_6a.branch3x3dbl_3", 96, 96, 3, 17);
  inception_c(layers, "Mixed_6b", 128);
  inception_c(layers, "Mixed_6c", 160);
  inception_c(layers, "Mixed_6d", 160);
  inception_c(layers, "Mixed_6e", 192);
  layers.conv_bn("Mixed_7a.branch3x3_1", 768, 192, 1, 17);
  layers.conv_bn("Mixed_7a.branch3x3_2", 192, 320, 3, 8);
  layers.conv_bn("Mixed_7a.branch7x7x3_1", 768, 192, 1, 17);
  layers.conv_bn("Mixed_7a.branch7x7x3_2", 192, 192, 1, 7, 17);
  layers.conv_bn("Mixed_7a.branch7x7x3_3", 192, 192, 7, 1, 17);
  layers.conv_bn("Mixed_7a.branch7x7x3_4", 192, 192, 3, 8);
  inception_e(layers, "Mixed_7b", 1280);
  inception_e(layers, "Mixed_7c", 2048);
  layers.linear("fc", 2048, 1000);
  return layers.take();
}

}  // namespace rueda::bench
