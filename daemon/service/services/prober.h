// Measures the bandwidths between all nodes of --nodes, one pair after the other, so that nothing
// disturbs a measurement but what is there anyway; then tells all nodes. One probe at a time, on a
// thread that lives as long as it does. Methods may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "daemon/service/members/daemon_info.h"
#include "daemon/service/members/membership.h"
#include "rueda/v1/admin.pb.h"

namespace rueda::service {

class Prober {
 public:
  // Not on the prober's thread only when the probe is refused: then at once.
  using Done = std::function<void(const Result<v1::ProbeReply>&)>;

  // Both outlive it.
  Prober(const Membership& membership, const DaemonInfo& info);
  ~Prober();  // stops

  // `done` is called once. Returns the probe's number; 0: it was refused.
  uint64_t start(Done done);
  // Breaks that one off, if it is under way: it ends soon, and what the nodes know stays.
  void cancel(uint64_t number);
  // Breaks off what is under way, waits for it, and refuses what comes.
  void stop();

 private:
  class Run;

  const Membership& membership_;
  const DaemonInfo& info_;
  std::mutex mutex_;
  std::unique_ptr<Run> run_;  // under way
  uint64_t number_ = 0;       // of the last one
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace rueda::service
