#include "daemon/local/wire.h"

#include <algorithm>

namespace rueda::local {
namespace {

// The order is that of Method, whose first number is 1.
constexpr std::array<std::string_view, kMethods> kNames{
    "rueda.v1.Agent/Run",        "rueda.v1.Agent/Describe",  "rueda.v1.Admin/GetStatus",
    "rueda.v1.Admin/ListJobs",   "rueda.v1.Admin/ListPlans", "rueda.v1.Admin/ListPeers",
    "rueda.v1.Admin/ListStalls", "rueda.v1.Admin/Probe",     "rueda.v1.Admin/RequestTimeline",
    "rueda.v1.Admin/EndJob",
};
static_assert(static_cast<size_t>(Method::kEndJob) == kMethods);

// Where the fields of a header begin.
constexpr size_t kVersionAt = 4;
constexpr size_t kKindAt = 5;
constexpr size_t kCodeAt = 6;
constexpr size_t kBytesAt = 8;
constexpr size_t kReservedAt = 12;

// Numbers are little-endian, as in the local ABI.
template <class Number>
void put(char* to, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) to[i] = static_cast<char>(number >> (8 * i));
}

template <class Number>
Number get(const char* from) {
  Number number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    number = static_cast<Number>(number | static_cast<Number>(static_cast<unsigned char>(from[i]))
                                              << (8 * i));
  }
  return number;
}

}  // namespace

std::optional<Method> find_method(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Method>(found - kNames.begin() + 1);
}

std::string_view name_of(Method method) {
  const auto number = static_cast<size_t>(method);
  return number >= 1 && number <= kMethods ? kNames[number - 1] : std::string_view();
}

size_t max_request_bytes(Method method) {
  return method == Method::kRun ? kMaxRegistrationBytes : kMaxRequestBytes;
}

std::array<char, kHeaderBytes> encode(const Header& header) {
  std::array<char, kHeaderBytes> bytes{};
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  put(&bytes[kVersionAt], kVersion);
  put(&bytes[kKindAt], static_cast<uint8_t>(header.kind));
  put(&bytes[kCodeAt], header.code);
  put(&bytes[kBytesAt], header.bytes);
  return bytes;
}

Result<Header> decode(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic)) {
    return Status(Code::kInvalidArgument, "no frame begins like this");
  }
  // It comes before all else, because the rest may be different in another version.
  const auto version = get<uint8_t>(&bytes[kVersionAt]);
  if (version != kVersion) return Status(Code::kVersion, std::to_string(version));
  const auto kind = get<uint8_t>(&bytes[kKindAt]);
  if (kind < static_cast<uint8_t>(Kind::kCall) || kind > static_cast<uint8_t>(Kind::kStatus)) {
    return Status(Code::kInvalidArgument, "there is no frame of kind " + std::to_string(kind));
  }
  if (get<uint32_t>(&bytes[kReservedAt]) != 0) {
    return Status(Code::kInvalidArgument, "bytes of a frame that must be 0 are not");
  }
  return Header{static_cast<Kind>(kind), get<uint16_t>(&bytes[kCodeAt]),
                get<uint32_t>(&bytes[kBytesAt])};
}

std::string make_frame(Kind kind, uint16_t code, std::string_view payload) {
  const auto header = encode({kind, code, static_cast<uint32_t>(payload.size())});
  std::string frame;
  frame.reserve(header.size() + payload.size());
  frame.append(header.data(), header.size());
  frame.append(payload);
  return frame;
}

std::string make_frame(Method method, std::string_view request) {
  return make_frame(Kind::kCall, static_cast<uint16_t>(method), request);
}

std::string make_frame(const CallStatus& status) {
  return make_frame(Kind::kStatus, static_cast<uint16_t>(status.code),
                    std::string_view(status.text).substr(0, kMaxTextBytes));
}

CallStatus status_of(const Header& header, std::string_view payload) {
  return {static_cast<CallCode>(header.code), std::string(payload)};
}

}  // namespace rueda::local
