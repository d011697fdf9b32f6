// One training process with its output.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/base/layout.h"
#include "agent/process/output.h"
#include "agent/process/process.h"

namespace rueda::agent {

// All on one loop. Its pid stays taken until the object goes, so that a signal to its process
// group can never reach a stranger.
class RankProcess {
 public:
  struct Events {
    // Once: the process has ended; its output may still come.
    std::function<void(ExitStatus)> on_exit;
    // Once: nobody holds its output open any more.
    std::function<void()> on_output_end;
  };

  RankProcess(boost::asio::io_context& loop, Rank rank, Events events);
  // Kills what is left of its process group.
  ~RankProcess();

  // `cpus`: that it keeps to; empty: where the system puts it.
  Status start(const std::vector<std::string>& command, const Environment& environment,
               const std::vector<int>& cpus, bool has_prefix, OutputSink& out, OutputSink& err);
  Rank rank() const { return rank_; }
  pid_t pid() const { return child_.pid; }
  // To its whole process group.
  void send_signal(int signal);
  void resume_output();
  // Tells of its end now, not in a later turn of the loop, if a signal has killed it. Waits for its
  // end if that has begun.
  void look_if_killed();
  bool is_output_ended() const;
  // Takes what its output holds now and stops listening.
  void finish_output();

 private:
  void on_exited(ExitStatus status);

  boost::asio::io_context& loop_;
  const Rank rank_;
  const Events events_;
  Child child_;
  boost::asio::posix::stream_descriptor exit_watch_;
  std::unique_ptr<OutputPipe> out_;
  std::unique_ptr<OutputPipe> err_;
};

}  // namespace rueda::agent
