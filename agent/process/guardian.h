// A second process that outlives the launcher if that is killed, and then ends what the launcher
// has started: the kernel's parent-death signal reaches ranks, but not processes that ranks have
// started.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/process/process.h"
#include "daemon/base/os/exit_watch.h"

namespace rueda::agent {

// The launcher's side of the guardian. Everything runs on one loop.
class Guardian {
 public:
  // `say` gets a line for the user if the guardian cannot be started.
  Guardian(boost::asio::io_context& loop, int64_t grace_ms,
           std::function<void(const std::string&)> say);
  // Ends the guardian, which then kills nobody, because the job has ended.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Starts the guardian. Must be called before anything else is started.
  void start();
  // Returns the value of $RUEDA_LAUNCH_ID that the ranks must have.
  const std::string& launch() const { return launch_; }
  void add_group(pid_t group);
  void add_daemon(pid_t pid);
  void forget_daemon(pid_t pid);

 private:
  void spawn_process();
  std::string all_orders() const;
  void send(const std::string& order);
  void on_exited();

  boost::asio::io_context& loop_;
  const int64_t grace_ms_;
  const std::function<void(const std::string&)> say_;
  std::string launch_;
  std::set<pid_t> groups_;
  std::set<pid_t> daemons_;
  Child child_;
  UniqueFd orders_;
  ExitWatch exit_watch_;
  int starts_ = 0;
};

// Runs `ruedarun --guardian`: takes orders from standard input until that ends. Returns the exit
// code.
int run_guardian();

}  // namespace rueda::agent
