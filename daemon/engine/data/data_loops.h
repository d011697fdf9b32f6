// The data loops of a daemon. The first loop does most of the work; large operations that go round
// the ring are shared out among all loops, each of which has channels of its own
// (docs/decisions/0030-streams.md). The object is as thread-safe as each loop is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/engine/data/data_loop.h"

namespace rueda::engine {

class DataLoops {
 public:
  // There is one loop at least.
  explicit DataLoops(std::vector<std::unique_ptr<DataLoop>> loops);

  // Starts each loop on its address, and returns the addresses bound. The error names the address;
  // the loops that were started are stopped. It is called once.
  Result<std::vector<std::string>> start(const std::vector<std::string>& listen_addresses);
  void stop();

  size_t size() const { return loops_.size(); }
  DataLoop& at(size_t index) { return *loops_[index]; }

  // These do on all loops what the methods of DataLoop do on one. Handlers are called once, on
  // whichever loop is the last.
  void cancel(const JobId& job, Epoch epoch, const core::Cancel& cancelled,
              std::function<void()> done);
  void end_set(const JobId& job, Epoch epoch, uint32_t process_set);
  void end_epoch(const JobId& job, Epoch epoch, std::function<void()> done);
  void when_quiet(const JobId& job, Epoch epoch, std::function<void()> handler);
  void refresh_metrics();

 private:
  std::vector<std::unique_ptr<DataLoop>> loops_;
};

// Nodes tell each other the addresses of their loops, one for each, in one text: "a:1,a:2".
std::string join_addresses(const std::vector<std::string>& addresses);
std::vector<std::string> split_addresses(const std::string& text);

}  // namespace rueda::engine
