// Asks a script of the user's, again and again, which hosts a job may run on, as Horovod's
// --host-discovery-script. A launcher looks for its own host alone: other hosts take part when the
// same command is run there.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/process.h"
#include "daemon/base/os/exit_watch.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Returns how many slots a script's output gives to the host that has these names; 0 if it is not
// listed. A line is HOST:SLOTS, or HOST for one slot; empty lines, and those that begin with "#",
// say nothing. kInvalidArgument names the first line that is neither.
Result<int> slots_of_host(const std::string& output, const std::set<std::string>& names);

// Returns the names, in small letters, and the addresses by which a script may mean this machine.
std::set<std::string> names_of_this_host();

class HostDiscovery {
 public:
  struct Limits {
    std::chrono::milliseconds interval{1'000};   // Between the end of one run and the next one.
    std::chrono::milliseconds patience{10'000};  // For a run, which is killed then.
  };
  struct Events {
    std::function<void(int)> on_slots;  // The answer is another than the last one.
    std::function<void(std::string)> on_note;
  };

  // The script is a command of /bin/sh.
  HostDiscovery(boost::asio::io_context& loop, std::string script, Events events)
      : HostDiscovery(loop, std::move(script), std::move(events), Limits()) {}
  HostDiscovery(boost::asio::io_context& loop, std::string script, Events events, Limits limits);
  ~HostDiscovery();
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;

  void start() { ask(); }
  // Kills a run. There are no more events.
  void stop();
  // Returns the last answer; none if there has been none.
  std::optional<int> slots() const { return slots_; }
  // Returns the names by which a script may mean this host, by commas.
  std::string names_text() const;
  // Returns why the last run gave no answer; empty if it gave one.
  const std::string& failure() const { return failure_; }

 private:
  void ask();
  void read();
  void look_at_end();
  void conclude(const Result<int>& answer);

  boost::asio::io_context& loop_;
  const std::string script_;
  const Events events_;
  const Limits limits_;
  const std::set<std::string> names_;
  boost::asio::steady_timer timer_;
  boost::asio::posix::stream_descriptor output_;
  std::string text_;
  std::array<char, 4096> chunk_{};
  Child child_;
  std::unique_ptr<ExitWatch> watch_;
  int run_ = 0;  // Counts them: what is left of one before says nothing.
  bool has_output_ended_ = false;
  bool has_exited_ = false;
  std::optional<int> slots_;
  std::string failure_;
};

}  // namespace rueda::agent
