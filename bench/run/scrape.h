// Reads a counter from the daemons' /metrics.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::bench {

// Returns the sum of all samples of `metric` in a Prometheus text whose labels include `label`, a
// pair as it is written there: kind="order". Returns nullopt if there is no such sample.
std::optional<double> sum_of_samples(std::string_view text, std::string_view metric,
                                     std::string_view label);

// Returns the body of http://ADDRESS/metrics, where ADDRESS is "host:port", or nullopt on any
// failure. It waits for each packet 2 s at most.
std::optional<std::string> fetch_metrics(const std::string& address);

// Returns the addresses in $RUEDA_HTTP_ADDRESSES, which are separated by commas.
std::vector<std::string> http_addresses();

// Returns how many messages about the order of tensors all daemons have sent so far; nullopt unless
// every one of `addresses` answers.
std::optional<double> order_messages(const std::vector<std::string>& addresses);

}  // namespace rueda::bench
