// The probe finds out, before the first operation of a data job, which algorithm is the quickest
// for how many bytes. Node 0 times messages that go round the ring, and sends round the table that
// follows from that. Where the table is fixed, nothing is measured. The probe belongs to its data
// loop.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "daemon/core/schedules/algorithm.h"
#include "daemon/engine/channels/ring_link.h"
#include "daemon/engine/channels/ring_probe.h"
#include "daemon/engine/data/data_job_options.h"

namespace rueda::engine {

class AlgorithmProbe {
 public:
  // Both outlive the object. Without a mesh everything goes round the ring.
  AlgorithmProbe(const DataJobOptions& options, bool has_mesh, RingLink& link);

  bool is_known() const { return !table_.empty(); }
  // Returns the table, which is empty until it is known.
  const core::AlgorithmTable& table() const { return table_; }
  // Returns whether this node, 0, measures.
  bool is_measuring() const { return probe_.has_value(); }
  // Returns the bytes of the largest message that has come, or 0.
  uint32_t largest_bytes() const { return largest_bytes_; }

  // The error of these functions says what the previous node sent that is impossible.

  // Begins to measure. All channels are open, and the table is not known.
  [[nodiscard]] Status begin();
  // A frame of kind kProbe has come round the ring, or kTable.
  [[nodiscard]] Status on_probe(const transport::FrameHeader& header, std::span<std::byte> payload);
  [[nodiscard]] Status on_table(const transport::FrameHeader& header, std::span<std::byte> payload);
  // A message has left, while this node measures.
  void on_sent() { send(); }

 private:
  void send();
  void tell_table();
  // Returns the table that a frame says, which is empty if it cannot be.
  core::AlgorithmTable parse(std::span<const std::byte> payload) const;
  void pass_on(const transport::FrameHeader& header, std::span<const std::byte> payload);
  uint32_t cookie() const { return link_.origin_cookie(0); }

  const DataJobOptions& options_;
  RingLink& link_;
  core::AlgorithmTable table_;
  std::optional<RingProbe> probe_;               // on node 0, while it measures
  std::optional<transport::FrameHeader> early_;  // a frame that came before it could be passed on
  double sent_s_ = 0;
  bool is_out_ = false;  // a message is going round
  uint32_t largest_bytes_ = 0;
};

}  // namespace rueda::engine
