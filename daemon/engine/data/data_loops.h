// The data loops of a daemon. The first one does most; large operations that go round the ring are
// shared out among all of them, each with channels of its own
// (docs/decisions/0030-streams.md). Thread-safe, as each of them is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/engine/data/data_loop.h"

namespace rueda::engine {

class DataLoops {
 public:
  // One at least.
  explicit DataLoops(std::vector<std::unique_ptr<DataLoop>> loops);

  // Starts each on its address; returns those bound. The error names the address; what was started
  // is stopped. Once.
  Result<std::vector<std::string>> start(const std::vector<std::string>& listen_addresses);
  void stop();

  size_t size() const { return loops_.size(); }
  DataLoop& at(size_t index) { return *loops_[index]; }

  // As of one loop, of all of them; handlers are called once, on whichever is the last.
  void cancel(const JobId& job, Epoch epoch, const core::Cancel& cancelled,
              std::function<void()> done);
  void end_set(const JobId& job, Epoch epoch, uint32_t process_set);
  void end_epoch(const JobId& job, Epoch epoch, std::function<void()> done);
  void when_quiet(const JobId& job, Epoch epoch, std::function<void()> handler);
  void refresh_metrics();

 private:
  std::vector<std::unique_ptr<DataLoop>> loops_;
};

// A node's addresses, one for each of its loops, as nodes tell them to each other: "a:1,a:2".
std::string join_addresses(const std::vector<std::string>& addresses);
std::vector<std::string> split_addresses(const std::string& text);

}  // namespace rueda::engine
