// Converts the rendezvous between launchers to and from messages.
#pragma once

#include <string>
#include <vector>

#include "agent/rendezvous/rendezvous.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::agent {

v1::EnterRequest to_proto(const Arrival& arrival);
Arrival from_proto(const v1::EnterRequest& request);
v1::EnterReply to_proto(const JobLayout& job);
JobLayout from_proto(const v1::EnterReply& reply);

// Returns the part of a request that a proof is made over: everything but the proof itself.
std::string proven_part(v1::EnterRequest request);
// Returns the part of a reply that a sealed token is bound to: everything but the token.
std::string unsealed_part(v1::EnterReply reply);

}  // namespace rueda::agent
