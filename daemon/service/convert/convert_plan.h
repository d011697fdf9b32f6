// Between protobuf and the core's tensors and plans. What comes from elsewhere is checked here, but
// for a plan's structure (core::find_flaw()).
#pragma once

#include "daemon/base/status.h"
#include "daemon/core/messages/messages.h"
#include "rueda/v1/agent.pb.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

// A message that breaks the protocol, by what it has.
Status broken(const std::string& what);

void fill_tensor(const core::TensorDescriptor& from, v1::TensorDescriptor& to);
Result<core::DescriptorPtr> read_tensor(const v1::TensorDescriptor& from);

// By number, from 1. What is out of bounds is no place of the plan, and core finds it.
core::PlanPlace read_place(uint32_t number);

void fill_plan(const core::Plan& from, v1::Lock& to);
Result<core::Plan> read_plan(const v1::Lock& from);
Result<core::Plan> read_plan(const v1::RecordedPlan& from);

// For the launcher.
v1::AgentEvent to_proto(const core::TuningLine& line);
v1::AgentEvent to_proto(const core::Plan& recorded);

}  // namespace rueda::service
