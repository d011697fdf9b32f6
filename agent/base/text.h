// Small conversions between bytes, sockets and text, and the system's random bytes.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/host_port.h"
#include "daemon/base/status.h"

namespace rueda::agent {

std::string to_hex(std::string_view bytes);

// From the kernel's generator; kInternal if it has none to give.
Result<std::string> random_bytes(size_t count_bytes);

// What of the file can be read; empty: nothing. A process of /proc may be gone in the middle of it.
std::string contents_of(const std::string& path);

// "unix:PATH" or, for "@name", "unix-abstract:name".
std::string grpc_target_of_socket(const std::string& socket);

}  // namespace rueda::agent
