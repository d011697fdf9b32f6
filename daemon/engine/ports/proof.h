// The proof that a daemon derives from a job's token, so that the token itself never travels
// between daemons.
#pragma once

#include <string>

#include "daemon/base/ids.h"
#include "daemon/transport/frame.h"

namespace rueda::engine {

// Returns the HMAC-SHA256 of (purpose, job, epoch, sender) under the token: it proves that the
// sender knows the token.
std::string make_proof(const std::string& token, const std::string& purpose, const JobId& job,
                       Epoch epoch, NodeIndex from);
// Returns the HMAC-SHA256 of a whole message, a GenerationPacket's body, under the token.
std::string make_packet_proof(const std::string& token, const JobId& job, const std::string& body);
// It compares in constant time.
bool proof_matches(const std::string& expected, const std::string& given);

// Returns the key of an epoch's data channels; a key of an old epoch opens nothing in a new one.
transport::JobToken make_data_token(const std::string& token, const JobId& job, Epoch epoch);

}  // namespace rueda::engine
