// The file of a recorded plan: a RecordedPlan of agent.proto as JSON. No type of protobuf in this
// header.
#pragma once

#include <string>

#include "agent/cli/agreement_settings.h"
#include "daemon/base/status.h"

namespace rueda::v1 {
class RecordedPlan;
}  // namespace rueda::v1

namespace rueda::agent {

// Reads settings.plan, if there is one, into settings.replayed_plan. The error names the file and
// what is wrong with it.
Status load_plan(AgreementSettings& settings);
// Whole, or as it was.
Status write_plan(const std::string& path, const v1::RecordedPlan& plan);

}  // namespace rueda::agent
