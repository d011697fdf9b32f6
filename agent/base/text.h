// Small conversions between bytes and text, and the system's random bytes.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/host_port.h"
#include "daemon/base/status.h"

namespace rueda::agent {

std::string to_hex(std::string_view bytes);

// Returns bytes of the kernel's generator, or kInternal if it has none to give.
Result<std::string> random_bytes(size_t count_bytes);

// Returns as much of the file as can be read, possibly "": a process may end while its file in
// /proc is read.
std::string contents_of(const std::string& path);

}  // namespace rueda::agent
