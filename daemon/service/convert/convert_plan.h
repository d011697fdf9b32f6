// Conversion between protobuf and the core's tensors and plans. Messages from elsewhere are checked
// here, except for the structure of a plan (core::find_flaw()).
#pragma once

#include "daemon/base/status.h"
#include "daemon/core/messages/messages.h"
#include "rueda/v1/agent.pb.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

// The error for a message that breaks the protocol; `what` says what the message has.
Status broken(const std::string& what);

void fill_tensor(const core::TensorDescriptor& from, v1::TensorDescriptor& to);
Result<core::DescriptorPtr> read_tensor(const v1::TensorDescriptor& from);

// Reads a place of a plan, numbered from 1. A number out of bounds becomes no place of the plan,
// and core finds it.
core::PlanPlace read_place(uint32_t number);

void fill_plan(const core::Plan& from, v1::Lock& to);
Result<core::Plan> read_plan(const v1::Lock& from);
Result<core::Plan> read_plan(const v1::RecordedPlan& from);

// These are events for the launcher.
v1::AgentEvent to_proto(const core::TuningLine& line);
v1::AgentEvent to_proto(const core::Plan& recorded);

}  // namespace rueda::service
