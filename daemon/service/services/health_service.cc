#include "daemon/service/services/health_service.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/alarm.h>
#include <grpcpp/impl/rpc_service_method.h>

#include "daemon/base/mutex.h"

namespace rueda::service {
namespace {

// This is grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class Serving : char { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

constexpr uint32_t kServiceTag = 1 << 3 | 2;  // HealthCheckRequest.service: field 1, a string
constexpr char kStatusTag = 1 << 3 | 0;       // HealthCheckResponse.status: field 1, a varint

// Returns the service that is asked about, or nullopt if the bytes are no HealthCheckRequest.
std::optional<std::string> parse(const grpc::ByteBuffer& request) {
  std::vector<grpc::Slice> slices;
  if (!request.Dump(&slices).ok()) return std::nullopt;
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  std::string service;
  while (const uint32_t tag = input.ReadTag()) {
    uint32_t length = 0;
    if (tag != kServiceTag || !input.ReadVarint32(&length) ||
        !input.ReadString(&service, static_cast<int>(length))) {
      return std::nullopt;
    }
  }
  if (!input.ConsumedEntireMessage()) return std::nullopt;
  return service;
}

grpc::ByteBuffer response(Serving serving) {
  const char bytes[] = {kStatusTag, static_cast<char>(serving)};
  const grpc::Slice slice(bytes, sizeof(bytes));
  return {&slice, 1};
}

using HealthCall = rpc::ServerCall<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr auto kLookEvery = std::chrono::seconds(2);
constexpr int kCheck = 0;  // The index of the method, in the order in which methods are added.
constexpr int kWatch = 1;

}  // namespace

// One Check or Watch. It deletes itself when gRPC has finished with it.
class HealthStream final : public HealthCall {
 public:
  HealthStream(rpc::CallQueue& queue, Arrived arrival, HealthService& service, bool is_watch)
      : HealthCall(queue, std::move(arrival)), service_(service), is_watch_(is_watch) {
    start_read(&request_);
  }

  // The service calls this with its mutex held.
  void on_serving_changed() {
    service_.mutex_.assume_held();
    tell();
  }

 private:
  void tell() RUEDA_REQUIRES(service_.mutex_) {
    const bool serves = service_.serving_ && service_.is_well_();
    const Serving now = !is_known_ ? Serving::kServiceUnknown
                        : serves   ? Serving::kServing
                                   : Serving::kNotServing;
    if (writing_ || finished_ || told_ == now) return;
    told_ = now;
    writing_ = true;
    start_write(response(now));
  }

  void on_read(bool ok) override {
    const std::optional<std::string> service = ok ? parse(request_) : std::nullopt;
    const MutexLock lock(service_.mutex_);
    if (!service) {
      return end({grpc::StatusCode::INVALID_ARGUMENT, "this is no HealthCheckRequest"});
    }
    is_known_ = service->empty();
    if (!is_known_ && !is_watch_) {
      return end(
          {grpc::StatusCode::NOT_FOUND, "the health of service " + *service + " is not known"});
    }
    tell();
    if (!is_watch_) return;
    service_.watchers_.push_back(this);
    look_later();
  }

  // Looks again after a while, because nobody tells when a loop stands still, nor when it goes on.
  void look_later() RUEDA_REQUIRES(service_.mutex_) {
    alarm_.Set(queue().get(), std::chrono::system_clock::now() + kLookEvery,
               operation([this](bool) {
                 const MutexLock lock(service_.mutex_);
                 if (finished_) return;
                 tell();
                 look_later();
               }));
  }

  void on_write(bool ok) override {
    const MutexLock lock(service_.mutex_);
    writing_ = false;
    if (!is_watch_ || !ok) return end(grpc::Status::OK);
    tell();
  }

  void on_cancel() override {
    const MutexLock lock(service_.mutex_);
    end(grpc::Status::CANCELLED);
  }

  void on_done() override { delete this; }

  void end(const grpc::Status& status) RUEDA_REQUIRES(service_.mutex_) {
    if (std::exchange(finished_, true)) return;
    service_.watchers_.remove(this);
    alarm_.Cancel();
    start_finish(status);
  }

  HealthService& service_;
  const bool is_watch_;
  bool is_known_ RUEDA_GUARDED_BY(service_.mutex_) = false;
  grpc::ByteBuffer request_;
  std::optional<Serving> told_ RUEDA_GUARDED_BY(service_.mutex_);
  bool writing_ RUEDA_GUARDED_BY(service_.mutex_) = false;
  bool finished_ RUEDA_GUARDED_BY(service_.mutex_) = false;
  grpc::Alarm alarm_;
};

HealthService::Methods::Methods() {
  for (const char* name : {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"}) {
    AddMethod(new grpc::internal::RpcServiceMethod(name, grpc::internal::RpcMethod::BIDI_STREAMING,
                                                   nullptr));
  }
  MarkMethodAsync(kCheck);
  MarkMethodAsync(kWatch);
}

void HealthService::serve(rpc::CallQueue& queue, const security::Callers& callers) {
  using HealthArrival = HealthCall::Arrived::element_type;
  for (const int method : {kCheck, kWatch}) {
    const auto action =
        method == kCheck ? security::Action::kCheckHealth : security::Action::kWatchHealth;
    rpc::await_streams<HealthArrival>(
        queue, {action, callers},
        [this, &queue, method](HealthArrival& arrival, void* tag) {
          service_.RequestAsyncBidiStreaming(method, &arrival.context, &arrival.stream, queue.get(),
                                             queue.get(), tag);
        },
        [this, &queue, method](std::unique_ptr<HealthArrival> arrival, const security::Caller&) {
          new HealthStream(queue, std::move(arrival), *this, method == kWatch);
        });
  }
}

void HealthService::set_serving(bool serving) {
  const MutexLock lock(mutex_);
  serving_ = serving;
  for (HealthStream* watcher : watchers_) watcher->on_serving_changed();
}

}  // namespace rueda::service
