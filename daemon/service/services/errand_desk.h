// Finds out what an errand of a probe is. Anybody who reaches the control port can send an errand,
// so a node asks the prober itself, at the address that its own --nodes has: a stranger can make a
// node ask, and nothing more. Errands are looked into one after the other, on a thread that begins
// with the first.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "daemon/base/mutex.h"
#include "daemon/rpc/credentials.h"
#include "daemon/service/members/daemon_info.h"
#include "daemon/service/members/membership.h"
#include "rueda/v1/probe.grpc.pb.h"

namespace rueda::service {

class ErrandDesk {
 public:
  // It is called on the desk's thread; but if the errand is refused, on the calling thread, at
  // once.
  using Done = std::function<void(const Result<v1::Explanation>&)>;

  // All of them must outlive the desk.
  ErrandDesk(const Membership& membership, const DaemonInfo& info,
             const rpc::Credentials& credentials)
      : membership_(membership), info_(info), credentials_(credentials) {}
  ~ErrandDesk() { stop(); }

  // Asks the prober what the errand is. May be called on any thread. Errors: kInvalidArgument (the
  // prober is not in --nodes), kUnavailable (it does not answer or does not know the errand, too
  // many errands wait, or the daemon stops).
  void explain(const v1::Errand& errand, Done done);
  // Refuses what waits, breaks off what is under way, and waits for the thread's end.
  void stop();

 private:
  struct Waiting {
    v1::Errand errand;
    Done done;
  };

  void run();
  // These run on the desk's thread.
  Result<v1::Explanation> ask(const v1::Errand& errand);
  Result<v1::Probe::Stub*> stub_of(const std::string& prober);

  const Membership& membership_;
  const DaemonInfo& info_;
  const rpc::Credentials& credentials_;
  // They are for the desk's thread alone.
  std::map<std::string, std::unique_ptr<v1::Probe::Stub>> stubs_;
  Mutex mutex_;
  Condition changed_;
  std::deque<Waiting> waiting_ RUEDA_GUARDED_BY(mutex_);
  grpc::ClientContext* call_ RUEDA_GUARDED_BY(mutex_) = nullptr;  // The call under way.
  bool is_stopped_ RUEDA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rueda::service
