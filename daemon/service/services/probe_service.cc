#include "daemon/service/services/probe_service.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/host_port.h"
#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"
#include "daemon/engine/ports/data_address.h"

namespace rueda::service {
namespace {

CallStatus refusal(const Status& status) {
  return {CallCode::kFailedPrecondition, status.message()};
}

// Converts a measurement that has been checked.
engine::LinkMeasurement from_proto(const v1::Measurement& from) {
  engine::LinkMeasurement to{from.probe(), from.pair(), {}};
  std::transform(from.token().begin(), from.token().end(), to.token.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return to;
}

engine::NodeBandwidths from_proto(const v1::Bandwidths& from) {
  engine::NodeBandwidths to;
  to.node_ids.assign(from.nodes().begin(), from.nodes().end());
  for (const v1::Bandwidths::Row& row : from.rows()) {
    to.bytes_per_second.emplace_back(row.bytes_per_second().begin(), row.bytes_per_second().end());
  }
  return to;
}

}  // namespace

void ProbeService::serve(rpc::CallQueue& queue, const security::Callers& callers) {
  rpc::UnaryCall<v1::Errand, v1::ReceiveReply>::await(
      queue, {security::Action::kReceiveMeasurement, callers},
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestReceive(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](ReceiveCall& call) {
        look_into(call, v1::Explanation::kReceive, &ProbeService::receive);
      });
  rpc::UnaryCall<v1::Errand, v1::SendReply>::await(
      queue, {security::Action::kSendMeasurement, callers},
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestSend(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](SendCall& call) { look_into(call, v1::Explanation::kSend, &ProbeService::send); });
  rpc::UnaryCall<v1::Errand, v1::KeepReply>::await(
      queue, {security::Action::kKeepBandwidths, callers},
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestKeep(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](KeepCall& call) { look_into(call, v1::Explanation::kKeep, &ProbeService::keep); });
  rpc::UnaryCall<v1::Errand, v1::Explanation>::await(
      queue, {security::Action::kExplainErrand, callers},
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestExplain(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](ExplainCall& call) { explain(call); });
}

template <class AnyCall>
void ProbeService::look_into(AnyCall& call, v1::Explanation::WhatCase expected,
                             void (ProbeService::*act)(AnyCall&, const v1::Explanation&)) {
  const security::Caller& caller = call.caller();
  if (caller.kind == security::Caller::Kind::kNode && caller.name != call.request().prober()) {
    return call.fail(
        {CallCode::kFailedPrecondition,
         "node " + caller.name + " has no errands of node " + one_line(call.request().prober())});
  }
  desk_.explain(
      call.request(), [this, &call, expected, act](const Result<v1::Explanation>& explanation) {
        if (!explanation.is_ok()) return call.fail(refusal(explanation.status()));
        if (explanation.value().what_case() != expected) {
          return call.fail({CallCode::kFailedPrecondition,
                            "node " + call.request().prober() + " has another errand under way"});
        }
        (this->*act)(call, explanation.value());
      });
}

void ProbeService::receive(ReceiveCall& call, const v1::Explanation& explanation) {
  const v1::Measurement& measurement = explanation.receive();
  const Status right = check(measurement, measurement.to(), measurement.from());
  if (!right.is_ok()) return call.fail(refusal(right));
  control_loop_.post([this, &call, what = from_proto(measurement)] {
    engine_.receive_measurement(what, [&call](const Result<std::string>& address) {
      if (!address.is_ok()) return call.fail(refusal(address.status()));
      call.reply().set_data_address(address.value());
      call.finish();
    });
  });
}

void ProbeService::send(SendCall& call, const v1::Explanation& explanation) {
  const v1::Measurement& measurement = explanation.send().measurement();
  const Status right = check(measurement, measurement.from(), measurement.to());
  if (!right.is_ok()) return call.fail(refusal(right));
  const std::string address =
      // The node has been checked.
      engine::data_address_of(membership_.address_of(measurement.to()).value(),
                              explanation.send().data_address(), membership_.is_binding());
  if (const auto right_address = parse_dial_address(address); !right_address.is_ok()) {
    return call.fail(refusal(right_address.status()));
  }
  control_loop_.post([this, &call, address, what = from_proto(measurement), to = measurement.to()] {
    engine_.send_measurement(
        what, address, [this, &call, address, to](const Result<double>& bytes_per_second) {
          const Status status = bytes_per_second.status();
          if (status.code() == Code::kUnavailable) return call.fail(refusal(status));
          if (status.is_ok()) {
            call.reply().set_bytes_per_second(bytes_per_second.value());
          } else {
            // The answer does not tell the caller who listens where.
            spdlog::warn("probe: to node {} at {}: {}", to, address, status.message());
            call.reply().set_error("no measurement over its data plane; the log of node " +
                                   info_.node_id + " says why");
          }
          call.finish();
        });
  });
}

void ProbeService::keep(KeepCall& call, const v1::Explanation& explanation) {
  const Status right = check(explanation.keep());
  if (!right.is_ok()) return call.fail(refusal(right));
  control_loop_.post([this, &call, what = from_proto(explanation.keep())] {
    engine_.keep_bandwidths(what);
    call.finish();
  });
}

void ProbeService::explain(ExplainCall& call) {
  Result<v1::Explanation> explanation = prober_.explain(call.request());
  if (!explanation.is_ok()) {
    return call.fail({CallCode::kNotFound, explanation.status().message()});
  }
  call.reply() = std::move(explanation).value();
  call.finish();
}

Status ProbeService::check(const v1::Measurement& measurement, const std::string& self,
                           const std::string& other) const {
  if (self != info_.node_id) {
    return {Code::kInvalidArgument, "the daemon called node " + self + " in --nodes is node " +
                                        info_.node_id + "; correct the list"};
  }
  if (measurement.token().size() != limits::kTokenBytes) {
    return {Code::kInvalidArgument, "a measurement has a token of " +
                                        std::to_string(measurement.token().size()) + " bytes"};
  }
  if (!membership_.address_of(other).is_ok()) {
    return {Code::kInvalidArgument, "node " + self + " measures nothing with node " + other +
                                        ", which is not in its --nodes; give all daemons the same "
                                        "list"};
  }
  return Status::ok();
}

Status ProbeService::check(const v1::Bandwidths& bandwidths) const {
  for (const std::string& node : bandwidths.nodes()) {
    if (membership_.address_of(node).is_ok()) continue;
    return {Code::kInvalidArgument, "node " + info_.node_id + " keeps no bandwidths of node " +
                                        node +
                                        ", which is not in its --nodes; give all daemons "
                                        "the same list"};
  }
  return engine::check(from_proto(bandwidths));
}

}  // namespace rueda::service
