// Records what happened in a run: always as a hash, so that two runs can be compared, and on demand
// as text, one line an event: when, on which node, what, and what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/job/job.h"

namespace rueda::sim {

// Returns a text such as "Ready #3 from n1: t0, t4".
std::string describe(const core::Layout& layout, NodeIndex node, const core::Event& event);
// Returns texts such as "n0 sends Decree #2 to n1: 4 = t0+t4", one for each thing that the node is
// to do.
std::vector<std::string> describe(const core::Layout& layout, NodeIndex node,
                                  const core::Output& output);
// Returns a text such as "goes on in epoch 2 = n0, n2, 3 is 1 REDO".
std::string describe(const core::NextEpoch& next);
// Returns the name of the message's kind; the other function returns what it says.
const char* kind_of(const core::Message& message);
std::string describe(const core::Message& message);
// Returns a text such as "a+b".
std::string join_names(const std::vector<std::string>& names);

class Trace {
 public:
  explicit Trace(bool keep_text) : keep_text_(keep_text) {}

  void on_step(TicksMs now, const core::Layout& layout, NodeIndex node, const core::Event& event,
               const core::Output& output);
  // Records something that is not an event of a core, such as "n2 dies".
  void note(TicksMs now, const std::string& what);

  uint64_t hash() const { return hash_; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void add(uint64_t number);

  const bool keep_text_;
  uint64_t hash_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace rueda::sim
