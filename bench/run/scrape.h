// Reads a counter from the daemons' /metrics.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::bench {

// The sum of all samples of `metric` in a Prometheus text whose labels include `label`, a pair as
// it is written there: kind="order". Nothing when there is no such sample.
std::optional<double> sum_of_samples(std::string_view text, std::string_view metric,
                                     std::string_view label);

// The body of http://ADDRESS/metrics; ADDRESS is "host:port". Waits 2 s at most for each packet.
// Nothing on any failure.
std::optional<std::string> fetch_metrics(const std::string& address);

// The addresses in $RUEDA_HTTP_ADDRESSES, separated by commas.
std::vector<std::string> http_addresses();

// Messages about the order of tensors that all daemons have sent so far; nothing unless every one
// of `addresses` answers.
std::optional<double> order_messages(const std::vector<std::string>& addresses);

}  // namespace rueda::bench
