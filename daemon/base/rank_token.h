// The token of one training process, derived from the job's token: the launcher hands it to the
// process, and the daemon computes it again when the process attaches.
// docs/decisions/0085-a-rank-knows-only-its-own-token.md
#pragma once

#include <string>

#include "daemon/base/ids.h"

namespace rueda {

// Returns the token, limits::kTokenBytes bytes, with which a process attaches as `rank`. It is an
// HMAC-SHA256 under the job's token, so that it tells nothing about that, nor about the tokens of
// other ranks.
std::string rank_token(const std::string& job_token, const JobId& job, Rank rank);

// Returns the same for a process of an elastic job. What such a process keeps for its life is its
// slot on the node; its rank may be another one in each generation.
std::string slot_token(const std::string& job_token, const JobId& job, const std::string& node_id,
                       LocalRank slot);

// Returns whether both are equal. The time that it takes does not depend on where they differ.
bool is_same_token(const std::string& expected, const std::string& given);

}  // namespace rueda
