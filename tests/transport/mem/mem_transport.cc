#include "tests/transport/mem/mem_transport.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <openssl/crypto.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include "daemon/base/check.h"
#include "daemon/transport/frame_check.h"
#include "daemon/transport/region_table.h"
#include "tests/transport/mem/mem_network.h"
#include "tests/transport/mem/mem_pipe.h"

namespace rueda::transport {

namespace mem {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int64_t kFirstRetryMs = 1;
constexpr int64_t kMaxRetryMs = 50;

// The message of a connecting transport to the listening one.
struct Request {
  ConnectOptions options;
  uint64_t attempt = 0;
  std::shared_ptr<const RegionTable> regions;
  std::shared_ptr<Door> reply_to;
};

}  // namespace

class MemTransport final : public Transport {
 public:
  MemTransport(asio::io_context& io, std::shared_ptr<MemNetwork> network)
      : io_(io), network_(std::move(network)), door_(std::make_shared<Door>(io, *this)) {}
  ~MemTransport() override {
    stop();
    door_->close();
    for (const auto& [key, mapped] : mapped_) ::munmap(mapped.data(), mapped.size());
  }

  const char* name() const override { return "mem"; }
  Status is_viable() const override { return Status::ok(); }
  Result<std::string> listen(const std::string& address) override;
  void expect(AcceptOptions options, AcceptHandler handler) override;
  void cancel_expect(const ChannelId& id) override { expectations_.erase(id); }
  void connect(ConnectOptions options, ConnectHandler handler) override;
  void cancel_connect(const ChannelId& id) override { attempts_.erase(id); }
  Result<RegionKey> register_region(std::span<std::byte> memory) override {
    return regions_->add(memory);
  }
  // Maps the memory, so that it must be a file, and sends from the mapping.
  Result<DeviceRegion> register_device_memory(const DeviceMemory& memory) override {
    void* const base = ::mmap(nullptr, memory.bytes, PROT_READ, MAP_SHARED, memory.fd,
                              static_cast<off_t>(memory.offset));
    if (base == MAP_FAILED) return Status(Code::kUnavailable, "the memory cannot be mapped");
    const std::span<std::byte> mapped(static_cast<std::byte*>(base), memory.bytes);
    const RegionKey key = regions_->add(mapped).value();
    mapped_.emplace(key.value, mapped);
    return DeviceRegion{key, mapped.data()};
  }
  void deregister_region(RegionKey key) override {
    regions_->remove(key);
    if (const auto mapped = mapped_.extract(key.value)) {
      ::munmap(mapped.mapped().data(), mapped.mapped().size());
    }
  }
  uint64_t rejected() const override { return rejected_; }
  void stop() override;

 private:
  struct Expectation {
    AcceptOptions options;
    AcceptHandler handler;
    Status checked;  // not ok if the options are wrong
    uint64_t serial;
    asio::steady_timer deadline;
  };
  struct Attempt {
    ConnectOptions options;
    ConnectHandler handler;
    uint64_t serial;
    asio::steady_timer deadline;
    asio::steady_timer retry_timer;
    int64_t retry_ms = kFirstRetryMs;
    std::string last_cause = "the attempt was still under way";
  };

  Attempt* find_attempt(const ChannelId& id, uint64_t serial);
  void try_to_connect(Attempt& attempt);
  void on_refused(const ChannelId& id, uint64_t serial, const std::string& cause);
  void finish_connect(const ChannelId& id, uint64_t serial,
                      Result<std::unique_ptr<SendChannel>> result);
  void finish_expect(const ChannelId& id, uint64_t serial,
                     Result<std::unique_ptr<ReceiveChannel>> result);
  void on_request(const Request& request);
  void refuse(const Request& request, const std::string& cause);
  void welcome(const Request& request, const AcceptOptions& accept, uint64_t serial);

  asio::io_context& io_;
  const std::shared_ptr<MemNetwork> network_;
  const std::shared_ptr<Door> door_;
  const std::shared_ptr<RegionTable> regions_ = std::make_shared<RegionTable>();
  std::map<uint32_t, std::span<std::byte>> mapped_;  // Devices' memory.
  std::string address_;                              // empty until it listens
  std::map<ChannelId, Expectation> expectations_;
  std::map<ChannelId, Attempt> attempts_;
  uint64_t last_serial_ = 0;
  uint64_t rejected_ = 0;
};

Result<std::string> MemTransport::listen(const std::string& address) {
  if (!address_.empty()) {
    return Status(Code::kInvalidArgument,
                  "cannot listen on " + address + ": this transport listens already");
  }
  std::string bound = address;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return Status(Code::kInvalidArgument,
                  "address \"" + address + "\" is not of the form host:port");
  }
  if (address.substr(colon + 1) == "0") {
    bound = address.substr(0, colon + 1) + std::to_string(network_->next_port());
  }
  if (!network_->add(bound, door_)) {
    return Status(Code::kUnavailable,
                  "cannot listen on " + bound +
                      ": the address is in use; choose another port, or 0 for any that is free");
  }
  address_ = bound;
  return bound;
}

void MemTransport::expect(AcceptOptions options, AcceptHandler handler) {
  const ChannelId id = options.id;
  const uint64_t serial = ++last_serial_;
  const Status checked = check_slots(id, options.slots, *regions_);
  const int64_t timeout_ms = checked.is_ok() ? options.timeout_ms : 0;
  if (expectations_.contains(id)) {
    asio::post(io_, [id, handler = std::move(handler)] { handler(taken(id)); });
    return;
  }
  const auto [place, is_new] =
      expectations_.try_emplace(id, Expectation{std::move(options), std::move(handler), checked,
                                                serial, asio::steady_timer(io_)});
  RUEDA_CHECK(is_new);
  asio::steady_timer& deadline = place->second.deadline;
  deadline.expires_after(std::chrono::milliseconds(timeout_ms));
  deadline.async_wait([door = door_, id, serial, checked, timeout_ms](const error_code& cancelled) {
    if (cancelled || door->owner() == nullptr) return;
    const Status late(Code::kTimeout, "node " + std::to_string(id.from_node) + " did not open " +
                                          describe(id) + " within " + std::to_string(timeout_ms) +
                                          " ms");
    door->owner()->finish_expect(id, serial, checked.is_ok() ? late : checked);
  });
}

void MemTransport::finish_expect(const ChannelId& id, uint64_t serial,
                                 Result<std::unique_ptr<ReceiveChannel>> result) {
  const auto found = expectations_.find(id);
  if (found == expectations_.end() || found->second.serial != serial) return;
  const AcceptHandler handler = std::move(found->second.handler);
  expectations_.erase(found);
  handler(std::move(result));
}

void MemTransport::connect(ConnectOptions options, ConnectHandler handler) {
  const ChannelId id = options.id;
  const uint64_t serial = ++last_serial_;
  Status status = check_geometry(id, options.slot_count);
  if (status.is_ok() && options.address.rfind(':') == std::string::npos) {
    status = Status(Code::kInvalidArgument,
                    "address \"" + options.address + "\" is not of the form host:port");
  }
  const int64_t timeout_ms = options.timeout_ms;
  if (attempts_.contains(id)) {
    asio::post(io_, [id, handler = std::move(handler)] { handler(taken(id)); });
    return;
  }
  const auto [place, is_new] =
      attempts_.try_emplace(id, Attempt{std::move(options), std::move(handler), serial,
                                        asio::steady_timer(io_), asio::steady_timer(io_)});
  RUEDA_CHECK(is_new);
  Attempt& attempt = place->second;
  if (!status.is_ok()) {
    asio::post(io_, [door = door_, id, serial, status] {
      if (door->owner() != nullptr) door->owner()->finish_connect(id, serial, status);
    });
    return;
  }
  attempt.deadline.expires_after(std::chrono::milliseconds(timeout_ms));
  attempt.deadline.async_wait([door = door_, id, serial](const error_code& cancelled) {
    if (cancelled || door->owner() == nullptr) return;
    const Attempt* late = door->owner()->find_attempt(id, serial);
    if (late == nullptr) return;
    door->owner()->finish_connect(
        id, serial,
        Status(Code::kTimeout, describe(id) + " to node " + std::to_string(id.to_node) + " at " +
                                   late->options.address + " could not be opened within " +
                                   std::to_string(late->options.timeout_ms) +
                                   " ms: " + late->last_cause));
  });
  try_to_connect(attempt);
}

MemTransport::Attempt* MemTransport::find_attempt(const ChannelId& id, uint64_t serial) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || found->second.serial != serial) return nullptr;
  return &found->second;
}

void MemTransport::try_to_connect(Attempt& attempt) {
  const std::shared_ptr<Door> target = network_->find(attempt.options.address);
  const Request request{attempt.options, attempt.serial, regions_, door_};
  const bool is_sent = target != nullptr && target->post([&](asio::io_context&) {
    return [target, request] {
      if (target->owner() != nullptr) target->owner()->on_request(request);
    };
  });
  if (!is_sent) on_refused(attempt.options.id, attempt.serial, "nobody listens there");
}

void MemTransport::on_refused(const ChannelId& id, uint64_t serial, const std::string& cause) {
  Attempt* const attempt = find_attempt(id, serial);
  if (attempt == nullptr) return;
  attempt->last_cause = cause;
  attempt->retry_timer.expires_after(std::chrono::milliseconds(attempt->retry_ms));
  attempt->retry_ms = std::min(attempt->retry_ms * 2, kMaxRetryMs);
  attempt->retry_timer.async_wait([door = door_, id, serial](const error_code& cancelled) {
    if (cancelled || door->owner() == nullptr) return;
    Attempt* const again = door->owner()->find_attempt(id, serial);
    if (again != nullptr) door->owner()->try_to_connect(*again);
  });
}

void MemTransport::finish_connect(const ChannelId& id, uint64_t serial,
                                  Result<std::unique_ptr<SendChannel>> result) {
  Attempt* const attempt = find_attempt(id, serial);
  if (attempt == nullptr) return;
  const ConnectHandler handler = std::move(attempt->handler);
  attempts_.erase(id);
  handler(std::move(result));
}

void MemTransport::on_request(const Request& request) {
  const ConnectOptions& connect = request.options;
  const auto found = expectations_.find(connect.id);
  if (found == expectations_.end() || !found->second.checked.is_ok()) {
    // The refusal is not counted, because no stranger comes this way.
    return refuse(request, "the channel is not expected there (yet)");
  }
  const AcceptOptions accept = found->second.options;
  if (CRYPTO_memcmp(connect.token.data(), accept.token.data(), accept.token.size()) != 0) {
    ++rejected_;
    return refuse(request, "the job's token differs");
  }
  const uint64_t serial = found->second.serial;
  if (geometry_of(connect, Protection::kNone) == geometry_of(accept, Protection::kNone))
    return welcome(request, accept, serial);
  const Status mismatch = geometry_mismatch(connect.id, geometry_of(connect, Protection::kNone),
                                            geometry_of(accept, Protection::kNone));
  ++rejected_;
  spdlog::warn("mem: refused a connection: {}", mismatch.message());
  request.reply_to->post([&](asio::io_context&) {
    return [door = request.reply_to, id = connect.id, attempt = request.attempt, mismatch] {
      if (door->owner() != nullptr) door->owner()->finish_connect(id, attempt, mismatch);
    };
  });
  finish_expect(connect.id, serial, mismatch);
}

void MemTransport::refuse(const Request& request, const std::string& cause) {
  request.reply_to->post([&](asio::io_context&) {
    return [door = request.reply_to, id = request.options.id, attempt = request.attempt, cause] {
      if (door->owner() != nullptr) door->owner()->on_refused(id, attempt, cause);
    };
  });
}

void MemTransport::welcome(const Request& request, const AcceptOptions& accept, uint64_t serial) {
  std::unique_ptr<ReceiveChannel> receive;
  request.reply_to->post([&](asio::io_context& writer_io) {
    auto ends = make_pipe(writer_io, request.options, request.regions, io_, accept);
    receive = std::move(ends.second);
    return [door = request.reply_to, id = request.options.id, attempt = request.attempt,
            send = std::move(ends.first)]() mutable {
      if (door->owner() != nullptr) {
        door->owner()->finish_connect(id, attempt, std::move(send));
      }
    };
  });
  if (receive != nullptr) finish_expect(request.options.id, serial, std::move(receive));
}

void MemTransport::stop() {
  if (!address_.empty()) network_->remove(address_);
  address_.clear();
  expectations_.clear();
  attempts_.clear();
}

}  // namespace mem

std::shared_ptr<MemNetwork> make_mem_network() { return std::make_shared<MemNetwork>(); }

std::unique_ptr<Transport> make_mem_transport(boost::asio::io_context& io,
                                              std::shared_ptr<MemNetwork> network) {
  return std::make_unique<mem::MemTransport>(io, std::move(network));
}

}  // namespace rueda::transport
