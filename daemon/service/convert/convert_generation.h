// Conversion between bytes and the messages by which an elastic job agrees on its next generation.
// What comes from a peer is checked here, as far as it can be without knowing the job.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/core/generations/generations.h"

namespace rueda::service {

std::string encode(const core::GenerationMessage& message);
Result<core::GenerationMessage> decode_generation_message(const std::string& bytes);
std::string encode(const core::GenerationVotes& votes);
Result<core::GenerationVotes> decode_generation_votes(const std::string& bytes);

}  // namespace rueda::service
