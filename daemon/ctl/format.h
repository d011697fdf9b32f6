// Formats replies of admin.proto for people and for scripts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <google/protobuf/message.h>
#include <nlohmann/json_fwd.hpp>

#include "rueda/v1/admin.pb.h"

namespace rueda::ctl {

// Returns every field by its name in the proto, set or not, in the proto's order. 64-bit integers
// become JSON numbers. `message` may have only scalar, string, message and repeated fields.
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

// Makes columns as wide as their widest cell, two blanks apart; the first row is the header. A
// column whose cells below the header are all numbers is aligned to the right.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);

// Returns a text such as "1.5 GiB".
std::string bytes_text(uint64_t bytes);
// Returns a text such as "2d 3h" or "4m 5s": the two largest units.
std::string duration_text(double seconds);
// Returns a day in UTC, such as "2026-11-28".
std::string day_text(int64_t since_1970_s);

std::string status_table(const v1::GetStatusReply& reply);
std::string jobs_table(const v1::ListJobsReply& reply);
std::string plans_table(const v1::ListPlansReply& reply);
std::string peers_table(const v1::ListPeersReply& reply);
std::string stalls_table(const v1::ListStallsReply& reply);
// Rates are in Gbit/s.
std::string probe_table(const v1::ProbeReply& reply);
std::string timeline_text(const v1::RequestTimelineReply& reply);
std::string end_text(const v1::EndJobReply& reply);

}  // namespace rueda::ctl
