// The proof that a daemon derives from a job's token, so that the token itself never travels
// between daemons.
#pragma once

#include <string>

#include "daemon/base/ids.h"
#include "daemon/transport/frame.h"

namespace rueda::engine {

// Goes with messages that take one: it proves that who has sent the message, over this very link,
// knows the token of its job.
struct Proof {
  std::string key;     // To send: what it is made with; empty: none is wanted.
  std::string digest;  // As it came: the hash of the message and of its link, by the control plane.
  std::string value;   // As it came.
};

// Returns the key of a job's proofs.
std::string make_proof_key(const std::string& token, const JobId& job);
// Returns the HMAC-SHA256 of a digest.
std::string make_proof(const std::string& key, const std::string& digest);
// Returns whether a proof that came was made with the key, for what it came with.
bool holds(const Proof& proof, const std::string& key);
// It compares in constant time.
bool proof_matches(const std::string& expected, const std::string& given);

// Returns the name that the job has on the data plane.
transport::JobKey make_job_key(const std::string& token, const JobId& job);
// Returns the key of an epoch's data channels; a key of an old epoch opens nothing in a new one.
transport::JobToken make_data_token(const std::string& token, const JobId& job, Epoch epoch);

}  // namespace rueda::engine
