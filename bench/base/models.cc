#include "bench/base/models.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <system_error>

#include "bench/base/families.h"

namespace rueda::bench {
namespace {

using Table = std::map<std::string, ParameterList, std::less<>>;

const Table& networks() {
  static const Table all = {
      {"resnet18", resnet({2, 2, 2, 2}, false)},
      {"resnet34", resnet({3, 4, 6, 3}, false)},
      {"resnet50", resnet({3, 4, 6, 3}, true)},
      {"resnet101", resnet({3, 4, 23, 3}, true)},
      {"resnet152", resnet({3, 8, 36, 3}, true)},
      {"googlenet-aux", googlenet(true)},
      {"googlenet-no-aux", googlenet(false)},
      {"inception3", inception3()},
      {"vgg16", vgg16()},
      {"alexnet", alexnet()},
      {"mobilenet1", mobilenet1()},
      {"nasnet-large", nasnet_large()},
  };
  return all;
}

ParameterList small(int tensors) {
  ParameterList list;
  for (int i = 0; i < tensors; ++i) list.push_back({"small." + std::to_string(i), {256}});
  return list;
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

int64_t total_multiply_adds(const ParameterList& parameters) {
  int64_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.multiply_adds;
  return total;
}

std::vector<double> ready_shares(const ParameterList& parameters) {
  constexpr double kForward = 1.0 / 3;
  // A set without layers, as small1000, is ready evenly.
  const int64_t known = total_multiply_adds(parameters);
  const auto all = static_cast<double>(known > 0 ? known : static_cast<int64_t>(parameters.size()));
  std::vector<double> shares(parameters.size());
  int64_t done = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    done += known > 0 ? parameters[i].multiply_adds : 1;
    shares[i] = kForward + (1 - kForward) * static_cast<double>(done) / all;
  }
  return shares;
}

std::optional<ParameterList> model_by_name(std::string_view name) {
  if (const auto found = networks().find(name); found != networks().end()) return found->second;
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

const std::vector<std::string>& network_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    std::transform(networks().begin(), networks().end(), std::back_inserter(all),
                   [](const auto& entry) { return entry.first; });
    return all;
  }();
  return names;
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"resnet50", "vgg16", "googlenet-aux", "small1000"};
  return names;
}

}  // namespace rueda::bench
