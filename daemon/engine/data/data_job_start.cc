// DataJob before its first operation: which algorithm is the quickest for how many bytes. Node 0
// times messages that go round the ring, and sends round what follows from that.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/engine/data/data_job.h"

namespace rueda::engine {
namespace {

// A line of the table in a frame: how many bytes, which algorithm; little-endian.
struct TableLine {
  int64_t up_to_bytes;
  uint64_t algorithm;
};
static_assert(sizeof(TableLine) == 16);

constexpr size_t kMostLines = 32;

}  // namespace

void DataJob::begin_probing() {
  last_progress_ms_ = steady_now_ms();
  watch_progress();
  if (options_.self.value == 0) {
    probe_.emplace(nodes(), geometry_.slot_bytes);
    return send_probe();
  }
  if (const auto header = std::exchange(early_probe_, std::nullopt)) {
    on_probe(*header, slot_payload(*header));
  }
}

void DataJob::send_probe() {
  // What came back has left, but that may not be told yet: on_sent comes back here.
  if (is_probe_out_ || outbox_.in_use(geometry_.slots())) return;
  const std::optional<uint32_t> bytes = probe_->next_bytes();
  if (!bytes) return tell_table();
  transport::FrameHeader header = header_of({}, transport::FrameKind::kProbe);
  header.chunk = probe_->sent();
  header.payload_bytes = *bytes;
  probe_sent_s_ = steady_now_s();
  is_probe_out_ = true;
  outbox_.push(geometry_.slots(), 0, kAtOnce, header,
               {origin_buffer(0), *bytes, staging_->region()});
}

void DataJob::on_probe(const transport::FrameHeader& header, std::span<std::byte> payload) {
  const bool is_right =
      options_.algorithm == core::AlgorithmChoice::kAuto && table_.empty() && header.slot == 0 &&
      (options_.self.value != 0 || (probe_ && is_probe_out_ && header.chunk == probe_->sent()));
  if (!is_right) {
    return give_up(previous(), Status(Code::kInternal, "it sent a probe that cannot be"));
  }
  largest_probe_ = std::max(largest_probe_, header.payload_bytes);
  if (options_.self.value == 0) {
    receive_->release(header.slot);
    probe_->note_round_trip(steady_now_s() - probe_sent_s_);
    is_probe_out_ = false;
    return send_probe();
  }
  if (!send_) {
    early_probe_ = header;
    return;
  }
  outbox_.push(header.slot, 0, kAtOnce, header,
               {payload.data(), payload.size(), staging_->region()});
}

void DataJob::tell_table() {
  const core::TransferCosts costs = probe_->costs(measure_additions());
  probe_.reset();
  const core::AlgorithmTable table = core::make_table(nodes(), costs);
  RUEDA_CHECK(table.size() <= kMostLines);
  std::string text;
  std::byte* lines = origin_buffer(0);
  for (size_t i = 0; i < table.size(); ++i) {
    const TableLine line{table[i].up_to_bytes, static_cast<uint64_t>(table[i].algorithm)};
    std::memcpy(lines + i * sizeof(line), &line, sizeof(line));
    if (i + 1 < table.size()) {
      text += std::string(core::to_string(table[i].algorithm)) + " up to " +
              std::to_string(table[i].up_to_bytes) + " bytes, ";
    }
  }
  spdlog::info(
      "job {}: a message to the next node takes {:.0f} us and {:.2f} ns a byte, adding {:.2f} ns a "
      "byte; all-reduces go by {}the ring beyond",
      options_.job, costs.latency_s * 1e6, costs.s_per_byte * 1e9, costs.add_s_per_byte * 1e9,
      text);
  transport::FrameHeader header = header_of({}, transport::FrameKind::kTable);
  header.payload_bytes = static_cast<uint32_t>(table.size() * sizeof(TableLine));
  outbox_.push(geometry_.slots(), 0, kAtOnce, header,
               {lines, header.payload_bytes, staging_->region()});
  table_ = table;
  begin_launching();
}

void DataJob::on_table(const transport::FrameHeader& header, std::span<std::byte> payload) {
  const size_t lines = payload.size() / sizeof(TableLine);
  core::AlgorithmTable table;
  bool is_right = options_.algorithm == core::AlgorithmChoice::kAuto && send_ && table_.empty() &&
                  options_.self.value != 0 && header.slot == 0 &&
                  payload.size() % sizeof(TableLine) == 0 && lines >= 1 && lines <= kMostLines;
  for (size_t i = 0; is_right && i < lines; ++i) {
    TableLine line;
    std::memcpy(&line, payload.data() + i * sizeof(line), sizeof(line));
    const auto algorithm = static_cast<core::Algorithm>(line.algorithm);
    is_right = line.algorithm <= static_cast<uint64_t>(core::Algorithm::kCentral) &&
               (algorithm == core::Algorithm::kRing || programs_.contains(algorithm)) &&
               (table.empty() || line.up_to_bytes > table.back().up_to_bytes);
    table.push_back({line.up_to_bytes, algorithm});
  }
  if (!is_right) {
    return give_up(previous(), Status(Code::kInternal, "it sent a table that cannot be"));
  }
  if (next().value == 0) {
    receive_->release(header.slot);
  } else {
    outbox_.push(header.slot, 0, kAtOnce, header,
                 {payload.data(), payload.size(), staging_->region()});
  }
  table_ = std::move(table);
  begin_launching();
}

}  // namespace rueda::engine
