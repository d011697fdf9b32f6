// Measures the bandwidths between all nodes of --nodes, one pair after the other, so that
// measurements do not disturb each other; then tells all nodes. One probe runs at a time, on a
// thread that lives as long as the probe. Methods may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "daemon/base/mutex.h"
#include "daemon/rpc/credentials.h"
#include "daemon/service/members/daemon_info.h"
#include "daemon/service/members/membership.h"
#include "rueda/v1/admin.pb.h"
#include "rueda/v1/probe.pb.h"

namespace rueda::service {

class Prober {
 public:
  // It is called on the prober's thread; but if the probe is refused, on the calling thread, at
  // once.
  using Done = std::function<void(const Result<v1::ProbeReply>&)>;

  // All of them must outlive the prober.
  Prober(const Membership& membership, const DaemonInfo& info, const rpc::Credentials& credentials);
  ~Prober();  // It calls stop().

  // Starts a probe. `done` is called once. Returns the probe's number, or 0 if it was refused.
  uint64_t start(Done done);
  // Cancels that probe if it is under way: it ends soon, and the nodes keep the bandwidths that
  // they know.
  void cancel(uint64_t number);
  // Returns what the errand is, or NOT_FOUND if it is not the last one of the probe under way.
  Result<v1::Explanation> explain(const v1::Errand& errand);
  // Cancels the probe under way, waits for its end, and refuses later probes.
  void stop();

 private:
  class Run;

  const Membership& membership_;
  const DaemonInfo& info_;
  const rpc::Credentials& credentials_;
  Mutex mutex_;
  std::unique_ptr<Run> run_ RUEDA_GUARDED_BY(mutex_);  // The probe under way.
  uint64_t number_ RUEDA_GUARDED_BY(mutex_) = 0;       // The number of the last probe.
  bool stopped_ RUEDA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rueda::service
