// Private daemons: the launcher starts them for one job, and they end with it.
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
#include "daemon/base/os/exit_watch.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Holds what a daemon writes to its --ready-fd once it serves, on one line.
struct DaemonReady {
  std::string node_id;
  std::string control_address;
  std::string data_address;
  std::string http_address;
  std::string socket;
};

// Parses one line of JSON: {"node_id":...,"control":...,"data":...,"http":...,"socket":...}.
Result<DaemonReady> parse_ready_line(const std::string& line);

// Parses the line that comes before that one from a daemon with --tls-fd: {"control":...}. Returns
// the address.
Result<std::string> parse_control_line(const std::string& line);

// Returns `wanted`, or "ruedad" next to the running program, or the first on PATH; kNotFound if
// none of them may be executed.
Result<std::string> find_ruedad(const std::string& wanted);

struct DaemonRequest {
  std::string program;
  std::string node_id;
  std::string socket;
  // The host to listen on. Launchers tell others how to reach the daemon, so it gets no address to
  // advertise.
  std::string listen_host;
  std::string log_level;
  std::string cpus;  // the CPUs that the daemon keeps to; empty: the system chooses
  std::vector<std::string> extra_args;
  // If true, the daemon is one of several on this machine, each of which stands for a machine. It
  // does so for NCCL, too, which allows one member on each GPU of a host.
  bool is_virtual = false;
  // A daemon that follows one that has died is found where that was; 0: anywhere.
  int control_port = 0;
  int http_port = 0;
  // If true, the daemon serves only once it has been told its certificate (tell_certificate()).
  bool awaits_certificate = false;
};

// Returns whether a flag is among these, with or without its value behind a "=".
bool has_flag(const std::vector<std::string>& arguments, const std::string& flag);

// Returns the command line. `ready_fd` is the number of the descriptor that the daemon finds open.
std::vector<std::string> daemon_argv(const DaemonRequest& request, int ready_fd);

// A private daemon. Everything runs on one loop.
class PrivateDaemon {
 public:
  struct Events {
    // Called once, before on_ready, with the address of the control port of a daemon that awaits
    // its certificate.
    std::function<void(const std::string&)> on_control_port;
    // Called once, when the daemon serves, or its start has failed.
    std::function<void(Result<DaemonReady>)> on_ready;
    // Called repeatedly after the daemon was told to stop, while it is still sending data that its
    // ranks left behind.
    std::function<void()> on_delivering;
    // Called once, after on_ready, when the daemon has ended.
    std::function<void(ExitStatus)> on_exit;
  };

  PrivateDaemon(boost::asio::io_context& loop, DaemonRequest request, Events events);
  ~PrivateDaemon();

  // Starts the daemon, whose output goes to `sink`, prefixed by the node's id. If the status is OK,
  // on_ready follows.
  Status start(OutputSink& sink);
  // Tells a daemon that awaits its certificate the line of --tls-fd. One that has ended meanwhile
  // does not read it, and on_exit follows.
  void tell_certificate(const std::string& line);
  // Sends a signal. For SIGTERM it releases the daemon's leash instead, which is how a launcher
  // ends its daemon (a signal may be meant for all processes of the job).
  void send_signal(int signal);
  bool is_running() const { return is_running_; }
  pid_t pid() const { return child_.pid; }
  const std::string& node_id() const { return request_.node_id; }
  void resume_output();
  // Takes the daemon's last output. Called after it has ended.
  void finish_output();

 private:
  void on_exited();
  // Reads the --ready-fd: first the lines, then a byte for each time that the daemon says it is
  // still delivering.
  void read_ready();
  void on_ready_bytes(size_t count_bytes, bool is_end);
  void on_line(const std::string& line);
  void be_ready(Result<DaemonReady> outcome);

  boost::asio::io_context& loop_;
  const DaemonRequest request_;
  const Events events_;
  Child child_;
  UniqueFd leash_;
  bool is_running_ = false;
  bool has_reported_ = false;
  bool awaits_control_port_ = false;
  ExitWatch exit_watch_;
  boost::asio::posix::stream_descriptor ready_pipe_;
  std::string ready_line_;
  char ready_buffer_[512];
  std::unique_ptr<OutputPipe> output_;
};

}  // namespace rueda::agent
