#include "bench/sim/networks.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "bench/base/models.h"

namespace rueda::scale {
namespace {

// Collects the numbers of elements of the gradients, as the shapes of torchvision's definitions
// give them.
class Tensors {
 public:
  void conv_bn(int64_t in, int64_t out, int64_t height, int64_t width) {
    add({in * out * height * width, out, out});
  }
  void conv_bn(int64_t in, int64_t out, int64_t kernel) { conv_bn(in, out, kernel, kernel); }
  void with_bias(int64_t weights, int64_t out) { add({weights, out}); }
  std::vector<int64_t> take() { return std::move(list_); }

 private:
  void add(std::initializer_list<int64_t> more) { list_.insert(list_.end(), more); }
  std::vector<int64_t> list_;
};

std::vector<int64_t> elements_of(const bench::ParameterList& parameters) {
  std::vector<int64_t> elements;
  for (const bench::Parameter& each : parameters) elements.push_back(each.elements());
  return elements;
}

// Returns a network of He et al. 2016, table 1. Bottlenecks have three convolutions a block, other
// blocks two.
std::vector<int64_t> resnet(const std::array<int, 4>& blocks, bool bottleneck) {
  Tensors tensors;
  tensors.conv_bn(3, 64, 7);
  const int64_t expansion = bottleneck ? 4 : 1;
  int64_t in = 64;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const int64_t width = int64_t{64} << stage;
    const int64_t out = width * expansion;
    for (int block = 0; block < blocks[stage]; ++block) {
      if (bottleneck) {
        tensors.conv_bn(in, width, 1);
        tensors.conv_bn(width, width, 3);
        tensors.conv_bn(width, out, 1);
      } else {
        tensors.conv_bn(in, width, 3);
        tensors.conv_bn(width, out, 3);
      }
      if (block == 0 && in != out) tensors.conv_bn(in, out, 1);
      in = out;
    }
  }
  tensors.with_bias(in * 1000, 1000);
  return tensors.take();
}

// Returns the network of Krizhevsky 2014, "One weird trick", as torchvision has it.
std::vector<int64_t> alexnet() {
  Tensors tensors;
  tensors.with_bias(int64_t{3} * 64 * 11 * 11, 64);
  tensors.with_bias(int64_t{64} * 192 * 5 * 5, 192);
  tensors.with_bias(int64_t{192} * 384 * 3 * 3, 384);
  tensors.with_bias(int64_t{384} * 256 * 3 * 3, 256);
  tensors.with_bias(int64_t{256} * 256 * 3 * 3, 256);
  tensors.with_bias(int64_t{256} * 6 * 6 * 4096, 4096);
  tensors.with_bias(int64_t{4096} * 4096, 4096);
  tensors.with_bias(int64_t{4096} * 1000, 1000);
  return tensors.take();
}

// Returns the network of Szegedy et al. 2016, table 1; blocks are named as in torchvision, and the
// auxiliary classifier is left out.
std::vector<int64_t> inception3() {
  Tensors t;
  t.conv_bn(3, 32, 3);
  t.conv_bn(32, 32, 3);
  t.conv_bn(32, 64, 3);
  t.conv_bn(64, 80, 1);
  t.conv_bn(80, 192, 3);
  for (const auto& [in, pool] :
       {std::pair<int64_t, int64_t>{192, 32}, {256, 64}, {288, 64}}) {  // A
    t.conv_bn(in, 64, 1);
    t.conv_bn(in, 48, 1);
    t.conv_bn(48, 64, 5);
    t.conv_bn(in, 64, 1);
    t.conv_bn(64, 96, 3);
    t.conv_bn(96, 96, 3);
    t.conv_bn(in, pool, 1);
  }
  t.conv_bn(288, 384, 3);  // B
  t.conv_bn(288, 64, 1);
  t.conv_bn(64, 96, 3);
  t.conv_bn(96, 96, 3);
  for (const int64_t c : {128, 160, 160, 192}) {  // C
    t.conv_bn(768, 192, 1);
    t.conv_bn(768, c, 1);
    t.conv_bn(c, c, 1, 7);
    t.conv_bn(c, 192, 7, 1);
    t.conv_bn(768, c, 1);
    t.conv_bn(c, c, 7, 1);
    t.conv_bn(c, c, 1, 7);
    t.conv_bn(c, c, 7, 1);
    t.conv_bn(c, 192, 1, 7);
    t.conv_bn(768, 192, 1);
  }
  t.conv_bn(768, 192, 1);  // D
  t.conv_bn(192, 320, 3);
  t.conv_bn(768, 192, 1);
  t.conv_bn(192, 192, 1, 7);
  t.conv_bn(192, 192, 7, 1);
  t.conv_bn(192, 192, 3);
  for (const int64_t in : {1280, 2048}) {  // E
    t.conv_bn(in, 320, 1);
    t.conv_bn(in, 384, 1);
    t.conv_bn(384, 384, 1, 3);
    t.conv_bn(384, 384, 3, 1);
    t.conv_bn(in, 448, 1);
    t.conv_bn(448, 384, 3);
    t.conv_bn(384, 384, 1, 3);
    t.conv_bn(384, 384, 3, 1);
    t.conv_bn(in, 192, 1);
  }
  t.with_bias(2048 * 1000, 1000);
  return t.take();
}

// Speeds of ResNet-50, ResNet-152, Inception-v3, VGG-16 and AlexNet, and their batches, are from
// TensorFlow's "Benchmarks" guide: one P100 of a DGX-1, synthetic data. The other speeds are
// estimated by multiply-adds an image (4.1e9 ResNet-50, 7.8e9 ResNet-101, 11.5e9 ResNet-152, 3.6e9
// ResNet-34, 1.8e9 ResNet-18, 5.7e9 Inception-v3, 1.5e9 GoogLeNet): ResNet-101 between its
// neighbours, GoogLeNet at Inception-v3's speed, and ResNet-18 and -34, which have 3x3 convolutions
// alone, at the mean of ResNet-50's and VGG-16's. LIS windows are the paper's; it has none for
// AlexNet, whose 0.2 is assumed.
std::vector<Network> make_networks() {
  return {
      {"resnet18", resnet({2, 2, 2, 2}, false), 914, 64, 0.46},
      {"resnet34", resnet({3, 4, 6, 3}, false), 457, 64, 0.55},
      {"resnet50", elements_of(bench::resnet50()), 219, 64, 0.48},
      {"resnet101", resnet({3, 4, 23, 3}, true), 129, 64, 0.30},
      {"resnet152", resnet({3, 8, 36, 3}, true), 91.8, 64, 0.23},
      {"googlenet-aux", elements_of(bench::googlenet_aux()), 540, 64, 0.56},
      {"inception3", inception3(), 142, 64, 0.42},
      {"vgg16", elements_of(bench::vgg16()), 154, 64, 0.32},
      {"alexnet", alexnet(), 2987, 512, 0.20},
  };
}

}  // namespace

int64_t Network::bytes() const {
  return 4 * std::accumulate(tensors.begin(), tensors.end(), int64_t{0});
}

const std::vector<Network>& networks() {
  static const std::vector<Network> all = make_networks();
  return all;
}

const Network* find_network(std::string_view name) {
  const auto found = std::find_if(networks().begin(), networks().end(),
                                  [&](const Network& each) { return each.name == name; });
  return found == networks().end() ? nullptr : &*found;
}

}  // namespace rueda::scale
