// What a proof on a control link is over: the message, and the link itself, by both ends' nodes and
// nonces and by the direction. So what was heard on one link proves nothing on another, nor with
// other words.
#pragma once

#include <cstddef>
#include <string>

#include "rueda/v1/control.pb.h"

namespace rueda::service {

inline constexpr size_t kNonceBytes = 32;

// One end of a link, as it has introduced itself.
struct LinkEnd {
  std::string node_id;
  std::string nonce;
};

// Returns kNonceBytes random bytes.
std::string make_nonce();
// Returns the SHA-256 of all that. Whatever proof the message has does not count.
std::string digest_of(const LinkEnd& sender, const LinkEnd& receiver, v1::LinkMessage message);

}  // namespace rueda::service
