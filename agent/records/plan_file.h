// Reads and writes the file of a recorded plan: a RecordedPlan of agent.proto as JSON. This header
// has no type of protobuf's.
#pragma once

#include <string>

#include "agent/cli/agreement_settings.h"
#include "daemon/base/status.h"

namespace rueda::v1 {
class RecordedPlan;
}  // namespace rueda::v1

namespace rueda::agent {

// Reads the file settings.plan, if it is named, into settings.replayed_plan. An error names the
// file and what is wrong with it.
Status load_plan(AgreementSettings& settings);
// Writes the file completely, or leaves it as it was.
Status write_plan(const std::string& path, const v1::RecordedPlan& plan);

}  // namespace rueda::agent
