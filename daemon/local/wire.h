// The frames of calls at the daemon's unix socket, which launchers and operators of its machine
// make: headers and names, and no I/O. docs/protocol.md has the format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/limits.h"
#include "daemon/base/status.h"
#include "daemon/rpc/call_status.h"

namespace rueda::local {

// The first bytes of every frame, and so of the connection (session::Greeting looks at them).
inline constexpr std::string_view kMagic = "RUDG";
inline constexpr uint8_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 16;

// A job's registration may hold a plan, which takes 3 MiB.
inline constexpr size_t kMaxRegistrationBytes = limits::kMaxControlMessageBytes;
// Of any other message that a client sends.
inline constexpr size_t kMaxRequestBytes = 64u << 10;
// Of any message that a daemon sends.
inline constexpr size_t kMaxReplyBytes = limits::kMaxControlMessageBytes;
// Of a status; a longer text is cut.
inline constexpr size_t kMaxTextBytes = 8u << 10;

enum class Kind : uint8_t {
  kCall = 1,     // Of a client: begins a call. The payload is its request.
  kMessage = 2,  // Of a client: a further message of a stream. Of a daemon: a reply.
  kEnd = 3,      // Of a client: it has no further message for the stream. There is no payload.
  kStatus = 4,   // Of a daemon: ends the call. The payload is a text.
};

// The methods are those of admin.proto and agent.proto.
enum class Method : uint16_t {
  kRun = 1,  // The one that is a stream.
  kDescribe = 2,
  kGetStatus = 3,
  kListJobs = 4,
  kListPlans = 5,
  kListPeers = 6,
  kListStalls = 7,
  kProbe = 8,
  kRequestTimeline = 9,
  kEndJob = 10,
};
inline constexpr size_t kMethods = 10;

// Returns the method with the name that it has in the table of callers and actions
// (security::rules()), such as "rueda.v1.Agent/Run".
std::optional<Method> find_method(std::string_view name);
// Returns the name of a method; "" if there is no method with such a number.
std::string_view name_of(Method method);
// Returns the most bytes that the request which begins such a call may have.
size_t max_request_bytes(Method method);

struct Header {
  Kind kind = Kind::kCall;
  uint16_t code = 0;   // The Method of a call, the CallCode of a status.
  uint32_t bytes = 0;  // Of the payload.
};

// Returns the first bytes of a frame.
std::array<char, kHeaderBytes> encode(const Header& header);
// Reads the first kHeaderBytes of `bytes`. Errors: kVersion (the other side speaks another version;
// the text is its number), kInvalidArgument (no frame begins like this; the text says why). Whether
// the payload may be that long is for the caller to decide.
Result<Header> decode(std::string_view bytes);

// Returns a whole frame.
std::string make_frame(Kind kind, uint16_t code, std::string_view payload);
std::string make_frame(Method method, std::string_view request);
std::string make_frame(const CallStatus& status);
// Returns the status that a frame of that kind holds.
CallStatus status_of(const Header& header, std::string_view payload);

}  // namespace rueda::local
