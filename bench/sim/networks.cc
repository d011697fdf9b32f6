#include "bench/sim/networks.h"

#include <algorithm>
#include <numeric>

#include "bench/base/compute.h"
#include "bench/base/models.h"

namespace rueda::scale {
namespace {

Network network(const char* name, double lis) {
  Network made;
  made.name = name;
  const bench::ParameterList parameters = bench::model_by_name(name).value();
  for (const bench::Parameter& each : parameters) {
    made.tensors.push_back(each.elements());
  }
  const bench::Compute& compute = bench::compute_on_p100(name);
  made.batch = compute.usual_batch;
  made.images_per_s = compute.images_per_s(made.batch);
  made.lis = lis;
  return made;
}

// LIS windows are the paper's; it has none for AlexNet, whose 0.2 is assumed.
std::vector<Network> make_networks() {
  return {network("resnet18", 0.46),   network("resnet34", 0.55),  network("resnet50", 0.48),
          network("resnet101", 0.30),  network("resnet152", 0.23), network("googlenet-aux", 0.56),
          network("inception3", 0.42), network("vgg16", 0.32),     network("alexnet", 0.20)};
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
