// Leads from the command line to a job's layout: finds or starts the daemons of this machine, and
// meets the launchers of the other nodes.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/base/layout.h"
#include "agent/base/network.h"
#include "agent/cli/binding.h"
#include "agent/cli/options.h"
#include "agent/launch/agent_link.h"
#include "agent/process/daemon_process.h"
#include "agent/process/output.h"
#include "agent/rendezvous/identity.h"
#include "agent/rendezvous/rendezvous.h"
#include "daemon/base/loop_gate.h"
#include "daemon/security/certificates/certificates.h"

namespace rueda::agent {

// Describes a node of the job whose ranks this launcher runs.
struct LocalNode {
  int node_index = 0;
  std::string node_id;
  std::string socket;
  std::string control_address;
  std::string http_address;
  // The CPUs that each rank keeps to, by local rank. It is empty if the system chooses.
  std::vector<std::vector<int>> rank_cpus;
};

// Everything runs on one loop. The object owns the private daemons for the whole life of the job.
class Bringup {
 public:
  struct Events {
    std::function<void(JobLayout)> on_ready;
    std::function<void(std::string)> on_failed;
    std::function<void(const PrivateDaemon&)> on_daemon_started;
    // A private daemon has ended; `was_ready` is false if its failure to start was reported.
    std::function<void(const PrivateDaemon&, ExitStatus, bool was_ready)> on_daemon_exit;
    std::function<void(const PrivateDaemon&)> on_daemon_delivering;
    // Gets progress for --verbose.
    std::function<void(std::string)> on_progress;
    // Gets a request that cannot be fulfilled; the job goes on without it.
    std::function<void(std::string)> on_note;
  };

  Bringup(boost::asio::io_context& loop, std::shared_ptr<LoopGate> gate, const Options& options,
          OutputSink& sink, Events events);

  void start();
  // Stops waiting for others. on_ready and on_failed are not called any more.
  void cancel();
  // Gives up because time is up, and tells the nodes that wait at this node's rendezvous.
  void give_up(const std::string& why);
  // Returns what has not happened in time, for a message.
  std::string overdue_text() const;

  const std::vector<LocalNode>& local_nodes() const { return local_nodes_; }
  // Starts the node's private daemon again, which has died or does not answer, where the others
  // find it. `done` is called once it serves, or its start has failed. A daemon that is not private
  // is found where it was: `done` is called at once.
  void revive(size_t index, std::function<void(Status)> done);
  // Kills the node's private daemon, which has not done in time what `why` says. Until it has
  // ended, that is why another cannot be started.
  void give_up_daemon(size_t index, const std::string& why);
  void signal_daemons(int signal);
  bool has_running_daemons() const;
  void resume_output();

 private:
  void use_running_daemon(const std::string& socket);
  std::unique_ptr<PrivateDaemon> make_daemon(size_t index);
  void start_daemons();
  // Binds ranks beside a daemon that runs already.
  void bind_beside(const DaemonDescription& daemon, LocalNode& node);
  // Divides the CPUs of `share` among so many ranks and their daemon; a `daemon` that is not empty
  // has the CPUs that the daemon keeps to already. Returns nullopt if --bind was not given, or
  // cannot be done.
  std::optional<Binding> bind_node(const std::vector<int>& share, const std::vector<int>& daemon,
                                   int ranks);
  void on_control_port(size_t index, const std::string& address);
  void on_daemon_ready(size_t index, Result<DaemonReady> outcome);
  // Makes the authority of the job's certificates, if it has any.
  Status prepare_certificates();
  void certify(size_t index);
  void on_nodes_known();
  void lay_out_here();
  // Returns the host under which the other nodes reach this one.
  Result<OwnHost> own_host() const;
  std::string missing_text(const std::string& missing) const;
  RendezvousSetting rendezvous_setting();
  void meet();
  bool awaits_last_call() const;
  void enter();
  void on_entered(Result<JobLayout> outcome);
  void conclude();
  // Node 0's launcher is gone: the next one is told of the job.
  void enter_again();
  void on_entered_again(const Status& status);
  void fail(const std::string& text);

  boost::asio::io_context& loop_;
  const std::shared_ptr<LoopGate> gate_;
  const Options& options_;
  OutputSink& sink_;
  const Events events_;
  bool is_over_ = false;
  std::vector<LocalNode> local_nodes_;
  // The host under which the other nodes reach the private daemons.
  OwnHost private_host_;
  bool guesses_host_ = false;
  std::string launcher_;
  const uint64_t incarnation_ = new_incarnation();
  std::vector<DaemonRequest> requests_;  // Of the private daemons.
  std::vector<std::unique_ptr<PrivateDaemon>> daemons_;
  std::map<size_t, std::function<void(Status)>> revivals_;  // By index, while one is under way.
  std::vector<bool> is_daemon_ready_;
  std::vector<std::string> overdue_;  // By daemon: what it has not done in time.
  // If true, this node's daemon is private, and waits for its certificate until the launchers have
  // met.
  bool awaits_certificate_ = false;
  std::optional<security::KeyPair> authority_;  // Of the job's certificates.
  std::optional<JobLayout> layout_;             // What the launchers have agreed on.
  std::unique_ptr<RendezvousServer> rendezvous_server_;
  std::unique_ptr<RendezvousCall> rendezvous_call_;
  // What node 0 has said of the job, where it may have to be told to another node 0. It is taken
  // back when the job ends.
  std::optional<JobIdentity> running_;
  boost::asio::steady_timer retry_timer_;
  std::chrono::milliseconds retry_after_;
  std::string last_rendezvous_error_;
  // The numbers of the nodes that had not come when the last attempt reached node 0.
  std::string last_missing_;
};

}  // namespace rueda::agent
