#include "daemon/ctl/format.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include <google/protobuf/descriptor.h>
#include <nlohmann/json.hpp>

namespace rueda::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::ordered_json;

// `index` is -1 for a field that is not repeated.
ordered_json field_to_json(const Message& message, const FieldDescriptor* field, int index) {
  const google::protobuf::Reflection& data = *message.GetReflection();
  const bool is_one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return is_one ? data.GetInt32(message, field) : data.GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return is_one ? data.GetInt64(message, field) : data.GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return is_one ? data.GetUInt32(message, field)
                    : data.GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return is_one ? data.GetUInt64(message, field)
                    : data.GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return is_one ? data.GetDouble(message, field)
                    : data.GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return is_one ? data.GetFloat(message, field) : data.GetRepeatedFloat(message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return is_one ? data.GetBool(message, field) : data.GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_STRING:
      return is_one ? data.GetString(message, field)
                    : data.GetRepeatedString(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return is_one ? data.GetEnum(message, field)->name()
                    : data.GetRepeatedEnum(message, field, index)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(is_one ? data.GetMessage(message, field)
                            : data.GetRepeatedMessage(message, field, index));
  }
  return nullptr;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

template <class Items>
std::string joined(const Items& items, const char* separator) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += separator;
    if constexpr (std::is_convertible_v<decltype(item), std::string>) {
      out += item;
    } else {
      out += std::to_string(item);
    }
  }
  return out;
}

std::string ranks_text(int count) {
  return std::to_string(count) + (count == 1 ? " rank" : " ranks");
}

std::string gigabits_text(double bytes_per_second) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", bytes_per_second * 8 / 1e9);
  return text;
}

std::string with_one_decimal(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", number);
  return text;
}

}  // namespace

ordered_json to_json(const Message& message) {
  ordered_json out = ordered_json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    if (!field->is_repeated()) {
      out[field->name()] = field_to_json(message, field, -1);
      continue;
    }
    ordered_json items = ordered_json::array();
    const int count = message.GetReflection()->FieldSize(message, field);
    for (int k = 0; k < count; ++k) items.push_back(field_to_json(message, field, k));
    out[field->name()] = std::move(items);
  }
  return out;
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> widths(rows.front().size(), 0);
  std::vector<bool> is_numeric(widths.size(), rows.size() > 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = 0; k < widths.size(); ++k) {
      widths[k] = std::max(widths[k], rows[i][k].size());
      if (i > 0 && !is_number(rows[i][k])) is_numeric[k] = false;
    }
  }
  std::string out;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t k = 0; k < widths.size(); ++k) {
      const std::string padding(widths[k] - row[k].size(), ' ');
      if (k > 0) line += "  ";
      line += is_numeric[k] ? padding + row[k] : row[k] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string bytes_text(uint64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  while (number >= 1024 && unit + 1 < kUnits.size()) {
    number /= 1024;
    ++unit;
  }
  return (unit == 0 ? std::to_string(bytes) : with_one_decimal(number)) + " " + kUnits[unit];
}

std::string day_text(int64_t since_1970_s) {
  const time_t time = since_1970_s;
  tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&time, &parts) == nullptr) return "?";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  const int64_t parts[] = {whole / 86400, whole / 3600 % 24, whole / 60 % 60, whole % 60};
  static constexpr char kUnits[] = {'d', 'h', 'm', 's'};
  for (int i = 0; i < 3; ++i) {
    if (parts[i] == 0) continue;
    return std::to_string(parts[i]) + kUnits[i] + " " + std::to_string(parts[i + 1]) +
           kUnits[i + 1];
  }
  return std::to_string(whole) + "s";
}

// Returns the time of the day in UTC, as in "04:12:33".
std::string clock_text(int64_t ms_since_1970) {
  const int64_t s = ms_since_1970 / 1000 % 86400;
  char text[16] = "";
  std::snprintf(text, sizeof(text), "%02d:%02d:%02d", static_cast<int>(s / 3600),
                static_cast<int>(s / 60 % 60), static_cast<int>(s % 60));
  return text;
}

namespace {

// Returns what protects tensors between nodes.
std::string tensors_of(const v1::GetStatusReply& reply) {
  if (reply.data_protection() == "encrypt") return "encrypted between nodes";
  if (reply.data_protection() == "authenticate") return "in clear between nodes, and authenticated";
  return reply.data_protection() == "none" ? "in clear between nodes" : "";
}

std::string protection_of(const v1::GetStatusReply& reply) {
  if (reply.identity().empty()) return reply.protection();
  return reply.protection() + ", " + reply.identity() + " until " +
         day_text(reply.certificate_expiry());
}

}  // namespace

std::string status_table(const v1::GetStatusReply& reply) {
  return aligned_table({{"node", reply.node_id()},
                        {"state", reply.state()},
                        {"version", reply.version()},
                        {"pid", std::to_string(reply.pid())},
                        {"uptime", duration_text(reply.uptime_seconds())},
                        {"control", or_dash(reply.control_address())},
                        {"data", or_dash(reply.data_address())},
                        {"http", or_dash(reply.http_address())},
                        {"socket", or_dash(reply.socket())},
                        {"protection", or_dash(protection_of(reply))},
                        {"tensors", or_dash(tensors_of(reply))},
                        {"sandbox", or_dash(joined(reply.sandbox(), ", "))},
                        {"jobs", std::to_string(reply.jobs())},
                        {"clients", std::to_string(reply.clients())},
                        {"gpu workers", std::to_string(reply.gpu_workers())},
                        {"simd", or_dash(reply.simd())},
                        {"transports", or_dash(joined(reply.transports(), ", "))},
                        {"labels", or_dash(joined(reply.labels(), ", "))}});
}

std::string jobs_table(const v1::ListJobsReply& reply) {
  std::string others;
  if (const int count = reply.jobs_of_others(); count > 0) {
    others = std::to_string(count) + (count == 1 ? " job" : " jobs") +
             " of other users: root sees all, and so do members of --admin-group\n";
  }
  if (reply.jobs().empty())
    return (others.empty() ? "no jobs\n" : "no jobs of this user\n") + others;
  std::vector<std::vector<std::string>> rows{{"JOB", "USER", "STATE", "EPOCH", "RANKS", "HERE",
                                              "ATTACHED", "NODES", "COORDINATOR", "MODE",
                                              "OPERATIONS", "REDUCED", "IN-FLIGHT"}};
  std::string notes;
  for (const v1::ListJobsReply::Job& job : reply.jobs()) {
    rows.push_back({job.job_id(), or_dash(job.user()), job.state(), std::to_string(job.epoch()),
                    std::to_string(job.world_size()), std::to_string(job.local_size()),
                    std::to_string(job.attached()), std::to_string(job.nodes()),
                    or_dash(job.coordinator()), or_dash(job.coordination()),
                    std::to_string(job.operations()), bytes_text(job.bytes_reduced()),
                    std::to_string(job.in_flight())});
    if (!job.missing_ranks().empty()) {
      notes +=
          job.job_id() + ": not attached yet: ranks " + joined(job.missing_ranks(), ", ") + "\n";
    }
    if (job.ring_size() > 1) {
      notes += job.job_id() + ": ring: " + joined(job.ring(), ", ") + "\n";
    }
    for (const v1::ListJobsReply::ProcessSet& set : job.process_sets()) {
      notes += job.job_id() + ": process set " + std::to_string(set.id()) + ": ranks " +
               joined(set.ranks(), ", ") + (set.locked() ? ", locked" : "") + "\n";
    }
    if (job.nodes() > 1) {
      notes +=
          job.job_id() + ": failure timeout: " + std::to_string(job.failure_timeout_ms()) + " ms\n";
    }
    for (const v1::ListJobsReply::Generation& generation : job.generations()) {
      notes += job.job_id() + ": generation " + std::to_string(generation.epoch()) + ", " +
               clock_text(generation.began_ms()) + ": " + std::to_string(generation.ranks()) +
               " ranks on " + std::to_string(generation.nodes()) + " nodes" +
               (generation.reason().empty() ? "" : ": " + generation.reason()) + "\n";
    }
    if (!job.error().empty()) notes += job.job_id() + ": " + job.error() + "\n";
  }
  return aligned_table(rows) + notes + others;
}

std::string plans_table(const v1::ListPlansReply& reply) {
  if (reply.plans().empty()) return "no job is locked\n";
  std::vector<std::vector<std::string>> rows{
      {"JOB", "SET", "BATCH", "AFTER", "COLLECTIVE", "DTYPE", "BYTES", "TENSORS", "FIRST", "LAST"}};
  for (const v1::ListPlansReply::Plan& plan : reply.plans()) {
    for (int i = 0; i < plan.batches_size(); ++i) {
      const v1::ListPlansReply::Batch& batch = plan.batches(i);
      if (batch.tensors().empty()) continue;
      rows.push_back({plan.job_id(), std::to_string(plan.process_set()),
                      std::to_string(i + 1) + (batch.ends() ? " end" : ""),
                      batch.after() == 0 ? "start" : std::to_string(batch.after()),
                      batch.collective(), batch.dtype(), bytes_text(batch.bytes()),
                      std::to_string(batch.tensors_size()), *batch.tensors().begin(),
                      *batch.tensors().rbegin()});
    }
  }
  return aligned_table(rows);
}

std::string peers_table(const v1::ListPeersReply& reply) {
  if (reply.peers().empty()) return "no peers\n";
  std::vector<std::vector<std::string>> rows{
      {"NODE", "CONTROL", "STATE", "VERSION", "HEARD", "SENT", "RECEIVED", "TRANSPORT"}};
  for (const v1::ListPeersReply::Peer& peer : reply.peers()) {
    rows.push_back({peer.node_id(), or_dash(peer.control_address()), peer.state(),
                    or_dash(peer.version()), with_one_decimal(peer.last_heard_seconds()) + "s ago",
                    bytes_text(peer.data_bytes_sent()), bytes_text(peer.data_bytes_received()),
                    or_dash(peer.transport())});
  }
  return aligned_table(rows);
}

std::string stalls_table(const v1::ListStallsReply& reply) {
  if (reply.stalls().empty()) return "no stalls\n";
  std::vector<std::vector<std::string>> rows{
      {"JOB", "SET", "TENSOR", "WAITING", "SUBMITTED", "MISSING"}};
  std::string notes;
  for (const v1::ListStallsReply::Stall& stall : reply.stalls()) {
    rows.push_back({stall.job_id(), std::to_string(stall.process_set()), stall.tensor(),
                    duration_text(stall.waiting_seconds()),
                    ranks_text(stall.submitted_ranks_size() + stall.more_submitted()),
                    ranks_text(stall.missing_ranks_size() + stall.more_missing())});
    notes += stall.job_id() + ": " + stall.text() + "\n";
  }
  return aligned_table(rows) + notes;
}

std::string probe_table(const v1::ProbeReply& reply) {
  const auto& nodes = reply.bandwidths().nodes();
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string>& header = rows.emplace_back();
  header.push_back("Gbit/s");
  for (const std::string& node : nodes) header.push_back("to " + node);
  for (int from = 0; from < nodes.size(); ++from) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back("from " + nodes[from]);
    const v1::Bandwidths::Row& measured = reply.bandwidths().rows(from);
    for (int to = 0; to < nodes.size(); ++to) {
      const double bytes_per_second = measured.bytes_per_second(to);
      row.push_back(bytes_per_second > 0 ? gigabits_text(bytes_per_second) : "-");
    }
  }
  std::string out = aligned_table(rows);
  for (const v1::ProbeReply::Link& link : reply.slowest()) {
    out += "slow: " + link.from() + " to " + link.to() + ", " +
           gigabits_text(link.bytes_per_second()) + " Gbit/s\n";
  }
  for (const v1::ProbeReply::Unreachable& pair : reply.unreachable()) out += pair.text() + "\n";
  return out + "ring without racks: " + joined(reply.ring(), ", ") + "\n";
}

std::string end_text(const v1::EndJobReply& reply) {
  return "job " + reply.job_id() + " of " + std::to_string(reply.nodes()) +
         (reply.nodes() == 1 ? " node" : " nodes") + " is over: " + reply.text() + "\n";
}

std::string timeline_text(const v1::RequestTimelineReply& reply) {
  return "told job " + reply.job_id() + ": its launcher on node 0 says where the file is\n";
}

}  // namespace rueda::ctl
