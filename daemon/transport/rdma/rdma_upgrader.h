// Makes RDMA channels of TCP connections that have said their hello: so a channel is found,
// authenticated and, where the network cannot do RDMA, carried on as over TCP
// (docs/decisions/0067-rdma-begins-on-tcp.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/tcp/upgrade.h"

namespace rueda::transport {

struct RdmaOptions {
  // If true, a channel that cannot be over RDMA fails; if false, it is over TCP, and the log says
  // why.
  bool is_required = false;
  // The devices that the streams of a channel use in turn, by name; every node has as many, in the
  // order in which they reach each other. Empty: the device on whose network the peer is.
  std::vector<std::string> devices;
  // For so long after the last work the loop looks for completions in each turn and does not sleep.
  std::chrono::microseconds poll{0};
  // It is called on the loop for each channel that has been made, with whether it is over RDMA.
  std::function<void(bool is_rdma)> on_channel;
};

// Returns ok, or why this machine, or this build, cannot use RDMA with these devices (as in
// RdmaOptions). Thread-safe.
Status rdma_viability(const std::vector<std::string>& devices);

// Returns null, with the reason in `why`, if this build has no RDMA, or libibverbs is not here.
// `io` is the transport's, and must outlive it and its channels.
std::shared_ptr<tcp::Upgrader> make_rdma_upgrader(boost::asio::io_context& io, RdmaOptions options,
                                                  Status& why);

}  // namespace rueda::transport
