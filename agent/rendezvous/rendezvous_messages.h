// Converts the rendezvous between launchers to and from messages.
#pragma once

#include <string>
#include <vector>

#include "agent/rendezvous/rendezvous.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::agent {

// Both ends ask so often whether the other is there: a machine may be gone without a word.
inline constexpr int kKeepaliveMs = 10'000;

v1::EnterRequest to_proto(const Arrival& arrival);
Arrival from_proto(const v1::EnterRequest& request);
v1::RunningJob to_proto(const JobIdentity& job, std::string sealed_token);
v1::EnterReply to_proto(const JobLayout& job);
JobLayout from_proto(const v1::EnterReply& reply);

// Returns the part of a request that a proof is made over: everything but the proof itself.
std::string proven_part(v1::EnterRequest request);
// Returns the part of a reply that a sealed token is bound to: everything but the token.
std::string unsealed_part(v1::EnterReply reply);
// The same of a job that runs already. It is never equal to that of a reply.
std::string unsealed_part(v1::RunningJob job);

}  // namespace rueda::agent
