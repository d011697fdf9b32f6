// Private daemons: started by the launcher for one job, gone with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/process/output.h"
#include "agent/process/process.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// What a daemon says on its --ready-fd once it serves.
struct DaemonReady {
  std::string node_id;
  std::string control_address;
  std::string data_address;
  std::string http_address;
  std::string socket;
};

// One line of JSON: {"node_id":...,"control":...,"data":...,"http":...,"socket":...}.
Result<DaemonReady> parse_ready_line(const std::string& line);

// `wanted`, or "ruedad" next to the running program, or the first on PATH. kNotFound if none of
// them may be executed.
Result<std::string> find_ruedad(const std::string& wanted);

struct DaemonRequest {
  std::string program;
  std::string node_id;
  std::string socket;
  // Others reach it where launchers say, so it is told of no address of its own.
  std::string listen_host;
  std::string log_level;
  std::string cpus;  // that it keeps to; empty: where the system puts it
  std::vector<std::string> extra_args;
  // One of several on this machine, each of which stands for a machine: to NCCL, too, which has
  // one member on a GPU of a host.
  bool is_virtual = false;
};

// `ready_fd` is the number that the daemon finds open.
std::vector<std::string> daemon_argv(const DaemonRequest& request, int ready_fd);

// One private daemon. All on one loop.
class PrivateDaemon {
 public:
  struct Events {
    // Once: it serves, or its start has failed.
    std::function<void(Result<DaemonReady>)> on_ready;
    // Again and again after it was told to stop: it is still handing on what its ranks left behind.
    std::function<void()> on_delivering;
    // Once, after on_ready: it has ended.
    std::function<void(ExitStatus)> on_exit;
  };

  PrivateDaemon(boost::asio::io_context& loop, DaemonRequest request, Events events);
  ~PrivateDaemon();

  // Its output goes to `sink`, prefixed by the node's id. on_ready follows if this is OK.
  Status start(OutputSink& sink);
  // SIGTERM: lets go of its leash, which is how its launcher ends it (a signal may be meant for all
  // processes of the job); else the signal.
  void send_signal(int signal);
  bool is_running() const { return is_running_; }
  pid_t pid() const { return child_.pid; }
  const std::string& node_id() const { return request_.node_id; }
  void resume_output();
  // Takes its last words; after it has ended.
  void finish_output();

 private:
  void wait_for_exit();
  void on_exited();
  // What it says on its --ready-fd: the line, then a byte each time that it is still delivering.
  void read_ready();
  void on_ready_bytes(size_t count_bytes, bool is_end);
  void be_ready(Result<DaemonReady> outcome);

  boost::asio::io_context& loop_;
  const DaemonRequest request_;
  const Events events_;
  Child child_;
  UniqueFd leash_;
  bool is_running_ = false;
  bool has_reported_ = false;
  boost::asio::posix::stream_descriptor exit_watch_;
  boost::asio::posix::stream_descriptor ready_pipe_;
  std::string ready_line_;
  char ready_buffer_[512];
  std::unique_ptr<OutputPipe> output_;
};

}  // namespace rueda::agent
