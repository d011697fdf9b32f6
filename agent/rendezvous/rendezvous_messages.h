// The rendezvous between launchers, as messages.
#pragma once

#include <string>
#include <vector>

#include "agent/rendezvous/rendezvous.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::agent {

v1::EnterRequest to_proto(const Arrival& arrival);
Arrival from_proto(const v1::EnterRequest& request);
v1::EnterReply to_proto(const JobIdentity& identity, const std::vector<NodeLayout>& nodes);
JobLayout from_proto(const v1::EnterReply& reply);

// What a proof is made over: all of the request but the proof itself.
std::string proven_part(v1::EnterRequest request);
// What a sealed token comes with: all of the reply but the token.
std::string unsealed_part(v1::EnterReply reply);

}  // namespace rueda::agent
