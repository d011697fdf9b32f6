#include "daemon/engine/data/algorithm_probe.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/check.h"

namespace rueda::engine {
namespace {

// A line of the table in a frame says up to how many bytes which algorithm is the quickest. Its
// numbers are little-endian.
struct TableLine {
  int64_t up_to_bytes;
  uint64_t algorithm;
};
static_assert(sizeof(TableLine) == 16);

constexpr size_t kMaxLines = 32;

bool is_possible(core::AlgorithmChoice choice, core::Algorithm algorithm) {
  const std::vector<core::Algorithm> exchanges = core::exchanges_of(choice);
  return algorithm == core::Algorithm::kRing ||
         std::find(exchanges.begin(), exchanges.end(), algorithm) != exchanges.end();
}

void log_table(const JobId& job, const core::TransferCosts& costs,
               const core::AlgorithmTable& table) {
  std::string text;
  for (size_t i = 0; i + 1 < table.size(); ++i) {
    text += std::string(core::to_string(table[i].algorithm)) + " up to " +
            std::to_string(table[i].up_to_bytes) + " bytes, ";
  }
  spdlog::info(
      "job {}: a message to the next node takes {:.0f} us and {:.2f} ns a byte, adding {:.2f} ns a "
      "byte; all-reduces go by {}the ring beyond",
      job, costs.latency_s * 1e6, costs.s_per_byte * 1e9, costs.add_s_per_byte * 1e9, text);
}

}  // namespace

AlgorithmProbe::AlgorithmProbe(const DataJobOptions& options, bool has_mesh, RingLink& link)
    : options_(options), link_(link) {
  if (!has_mesh) {
    table_ = core::fixed_table(core::AlgorithmChoice::kRing, options.nodes());
  } else if (options.algorithm != core::AlgorithmChoice::kAuto) {
    table_ = core::fixed_table(options.algorithm, options.nodes());
  }
}

Status AlgorithmProbe::begin() {
  if (options_.self.value == 0) {
    probe_.emplace(options_.nodes(), link_.geometry().slot_bytes);
    send();
    return Status::ok();
  }
  const auto header = std::exchange(early_, std::nullopt);
  return header ? on_probe(*header, link_.payload(*header)) : Status::ok();
}

void AlgorithmProbe::send() {
  // The message that came back has left, but that may not be told yet: on_sent() comes back here.
  if (is_out_ || link_.in_use(cookie())) return;
  const std::optional<uint32_t> bytes = probe_->next_bytes();
  if (!bytes) return tell_table();
  transport::FrameHeader header = link_.stamp().header(transport::FrameKind::kProbe);
  header.chunk = probe_->sent();
  header.payload_bytes = *bytes;
  sent_s_ = steady_now_s();
  is_out_ = true;
  link_.push(cookie(), 0, kAtOnce, header, {link_.origin_buffer(0), *bytes, link_.region()});
}

Status AlgorithmProbe::on_probe(const transport::FrameHeader& header,
                                std::span<std::byte> payload) {
  const bool is_right =
      options_.algorithm == core::AlgorithmChoice::kAuto && !is_known() && header.slot == 0 &&
      (options_.self.value != 0 || (probe_ && is_out_ && header.chunk == probe_->sent()));
  if (!is_right) return {Code::kInternal, "it sent a probe that cannot be"};
  largest_bytes_ = std::max(largest_bytes_, header.payload_bytes);
  if (options_.self.value == 0) {
    link_.release(header.slot);
    probe_->note_round_trip(steady_now_s() - sent_s_);
    is_out_ = false;
    send();
  } else if (link_.can_send()) {
    pass_on(header, payload);
  } else {
    early_ = header;
  }
  return Status::ok();
}

void AlgorithmProbe::pass_on(const transport::FrameHeader& header,
                             std::span<const std::byte> payload) {
  link_.push(header.slot, 0, kAtOnce, header, {payload.data(), payload.size(), link_.region()});
}

void AlgorithmProbe::tell_table() {
  const core::TransferCosts costs = probe_->costs(measure_additions());
  probe_.reset();
  table_ = core::make_table(options_.nodes(), costs);
  RUEDA_CHECK(table_.size() <= kMaxLines);
  log_table(options_.job, costs, table_);
  std::byte* lines = link_.origin_buffer(0);
  for (size_t i = 0; i < table_.size(); ++i) {
    const TableLine line{table_[i].up_to_bytes, static_cast<uint64_t>(table_[i].algorithm)};
    std::memcpy(lines + i * sizeof(line), &line, sizeof(line));
  }
  transport::FrameHeader header = link_.stamp().header(transport::FrameKind::kTable);
  header.payload_bytes = static_cast<uint32_t>(table_.size() * sizeof(TableLine));
  link_.push(cookie(), 0, kAtOnce, header, {lines, header.payload_bytes, link_.region()});
}

core::AlgorithmTable AlgorithmProbe::parse(std::span<const std::byte> payload) const {
  const size_t lines = payload.size() / sizeof(TableLine);
  if (payload.size() % sizeof(TableLine) != 0 || lines > kMaxLines) return {};
  core::AlgorithmTable table;
  for (size_t i = 0; i < lines; ++i) {
    TableLine line;
    std::memcpy(&line, payload.data() + i * sizeof(line), sizeof(line));
    const auto algorithm = static_cast<core::Algorithm>(line.algorithm);
    if (line.algorithm > static_cast<uint64_t>(core::Algorithm::kCentral) ||
        !is_possible(options_.algorithm, algorithm) ||
        (!table.empty() && line.up_to_bytes <= table.back().up_to_bytes)) {
      return {};
    }
    table.push_back({line.up_to_bytes, algorithm});
  }
  return table;
}

Status AlgorithmProbe::on_table(const transport::FrameHeader& header,
                                std::span<std::byte> payload) {
  const bool may_come = options_.algorithm == core::AlgorithmChoice::kAuto && link_.can_send() &&
                        !is_known() && options_.self.value != 0 && header.slot == 0;
  if (may_come) table_ = parse(payload);
  if (!may_come || !is_known()) return {Code::kInternal, "it sent a table that cannot be"};
  if (options_.next().value == 0) {
    link_.release(header.slot);
  } else {
    pass_on(header, payload);
  }
  return Status::ok();
}

}  // namespace rueda::engine
