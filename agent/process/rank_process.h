// Holds a training process and passes on its output.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/base/layout.h"
#include "agent/process/output.h"
#include "agent/process/process.h"
#include "daemon/base/os/exit_watch.h"

namespace rueda::agent {

// Everything runs on one loop. The process's pid stays taken until the object is destroyed, so that
// a signal to its process group can never reach another process.
class RankProcess {
 public:
  struct Events {
    // Called once, when the process has ended; its output may still come.
    std::function<void(ExitStatus)> on_exit;
    // Called once, when nobody holds its output open any more.
    std::function<void()> on_output_end;
  };

  RankProcess(boost::asio::io_context& loop, Rank rank, Events events);
  // Kills what is left of its process group.
  ~RankProcess();

  // Starts the process. `inherited_fd` stays open in it under the same number; -1: none. `cpus` are
  // those it keeps to; empty: the system chooses.
  Status start(const std::vector<std::string>& command, const Environment& environment,
               int inherited_fd, const std::vector<int>& cpus, bool has_prefix, OutputSink& out,
               OutputSink& err);
  Rank rank() const { return rank_; }
  pid_t pid() const { return child_.pid; }
  // Sends a signal to the whole process group.
  void send_signal(int signal);
  void resume_output();
  // If a signal has killed the process, reports its end now and not in a later turn of the loop.
  // Waits for the end if that has begun.
  void look_if_killed();
  bool is_output_ended() const;
  // Takes the output that is there now, and stops listening.
  void finish_output();

 private:
  void on_exited(ExitStatus status);

  boost::asio::io_context& loop_;
  const Rank rank_;
  const Events events_;
  Child child_;
  ExitWatch exit_watch_;
  std::unique_ptr<OutputPipe> out_;
  std::unique_ptr<OutputPipe> err_;
};

}  // namespace rueda::agent
