// How gRPC names the other end of a connection: "ipv4:10.0.0.1:4711" or
// "ipv6:%5Bfe80::1%25eth0%5D:4711".
#pragma once

#include <string>

namespace rueda::rpc {

// Returns a text with each "%5B" and its like replaced by the character that it stands for.
std::string percent_decoded(const std::string& text);

}  // namespace rueda::rpc
