#include "daemon/service/services/probe_service.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/host_port.h"
#include "daemon/base/limits.h"
#include "daemon/engine/ports/data_address.h"

namespace rueda::service {
namespace {

grpc::Status refusal(const Status& status) {
  return {grpc::StatusCode::FAILED_PRECONDITION, status.message()};
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

void ProbeService::serve(CallQueue& queue) {
  ReceiveCall::await(
      queue,
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestReceive(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](ReceiveCall& call) { receive(call); });
  SendCall::await(
      queue,
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestSend(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](SendCall& call) { send(call); });
  KeepCall::await(
      queue,
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestKeep(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](KeepCall& call) { keep(call); });
}

void ProbeService::receive(ReceiveCall& call) {
  const v1::Measurement& measurement = call.request().measurement();
  const Status right = check(measurement, measurement.to(), measurement.from());
  if (!right.is_ok()) return call.fail(refusal(right));
  control_loop_.post([this, &call] {
    engine_.receive_measurement(from_proto(call.request().measurement()),
                                [&call](const Result<std::string>& address) {
                                  if (!address.is_ok()) return call.fail(refusal(address.status()));
                                  call.reply().set_data_address(address.value());
                                  call.finish();
                                });
  });
}

void ProbeService::send(SendCall& call) {
  const v1::Measurement& measurement = call.request().measurement();
  const Status right = check(measurement, measurement.from(), measurement.to());
  if (!right.is_ok()) return call.fail(refusal(right));
  const std::string address =
      engine::data_address_of(membership_.address_of(measurement.to()).value(),  // checked
                              call.request().data_address());
  if (const auto right_address = parse_dial_address(address); !right_address.is_ok()) {
    return call.fail(refusal(right_address.status()));
  }
  control_loop_.post([this, &call, address] {
    engine_.send_measurement(
        from_proto(call.request().measurement()), address,
        [this, &call, address](const Result<double>& bytes_per_second) {
          const Status status = bytes_per_second.status();
          if (status.code() == Code::kUnavailable) {
            return call.fail(refusal(status));
          }
          if (status.is_ok()) {
            call.reply().set_bytes_per_second(bytes_per_second.value());
          } else {
            // The answer does not tell the caller who listens where.
            spdlog::warn("probe: to node {} at {}: {}", call.request().measurement().to(), address,
                         status.message());
            call.reply().set_error("no measurement over its data plane; the log of node " +
                                   info_.node_id + " says why");
          }
          call.finish();
        });
  });
}

void ProbeService::keep(KeepCall& call) {
  const Status right = check(call.request());
  if (!right.is_ok()) return call.fail(refusal(right));
  control_loop_.post([this, &call] {
    engine_.keep_bandwidths(from_proto(call.request()));
    call.finish();
  });
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
