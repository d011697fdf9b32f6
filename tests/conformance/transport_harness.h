// Provides what the conformance suite needs to drive any transport.
//
// To bring a new implementation into the suite, add one Fabric to all_fabrics() in
// transport_harness.cc, and its library, if it has one of its own, to CMakeLists.txt. If it asks
// ReceiveEvents::place(), its name goes into PayloadsGoWhereTheyArePlaced as well. It may leave
// itself out of the list when is_viable() says that this machine cannot run it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "daemon/transport/transport.h"

namespace rueda::transport {

using TransportFactory = std::function<std::unique_ptr<Transport>(boost::asio::io_context&)>;

struct Fabric {
  std::string name;
  // An address to listen on, whose port the transport chooses.
  std::string any_address;
  // An address of the right form where nobody listens.
  std::string dead_address;
  // Makes a factory of transports that can reach each other.
  std::function<TransportFactory()> make_factory;
  bool is_sealed = false;  // Frames have tags.
};
std::vector<Fabric> all_fabrics();
inline void PrintTo(const Fabric& fabric, std::ostream* out) { *out << fabric.name; }

inline constexpr int64_t kLongMs = 20'000;  // the time after which a test has hung
inline constexpr int64_t kShortMs = 60;     // a timeout that a test waits for

class Loop {
 public:
  boost::asio::io_context& io() { return io_; }
  // Runs the loop until done() holds. Returns false if it did not within kLongMs.
  bool run_until(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLongMs);
    while (!done()) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      io_.run_one_for(std::chrono::milliseconds(100));
    }
    return true;
  }
  // Runs all that is ready.
  void settle() {
    while (io_.poll() != 0) {
    }
  }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(io_);
};

// Holds memory that is registered with a transport for as long as this object lives.
class Region {
 public:
  Region(Transport& transport, size_t bytes)
      : memory_(bytes), key_(transport.register_region(memory_).value()) {}
  std::byte* data() { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  RegionKey key() const { return key_; }
  SendBuffer part(size_t offset, size_t bytes) const {
    return {memory_.data() + offset, bytes, key_};
  }

 private:
  std::vector<std::byte> memory_;
  RegionKey key_;
};

struct Writer : SendEvents {
  void on_sent(uint64_t cookie) override {
    note();
    sent.push_back(cookie);
    if (when_sent) when_sent(cookie);
  }
  void on_slot_free(uint32_t slot) override {
    note();
    freed.push_back(slot);
    if (when_free) when_free(slot);
  }
  void on_closed(const Status& status) override {
    note();
    closed = status;
    if (when_closed) when_closed();
  }
  void note() {
    ++callbacks;
    called_inside = called_inside || is_inside_call;
    EXPECT_FALSE(closed.has_value()) << "a callback behind on_closed()";
  }

  std::unique_ptr<SendChannel> channel;
  std::vector<uint64_t> sent;
  std::vector<uint32_t> freed;
  std::optional<Status> closed;
  std::function<void(uint64_t)> when_sent;
  std::function<void(uint32_t)> when_free;
  std::function<void()> when_closed;
  int callbacks = 0;
  bool is_inside_call = false;
  bool called_inside = false;
};

struct Reader : ReceiveEvents {
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  void on_frame(const FrameHeader& header, std::span<std::byte> payload) override {
    note();
    frames.push_back({header, {payload.begin(), payload.end()}});
    if (when_frame) when_frame(header, payload);
  }
  void on_closed(const Status& status) override {
    note();
    closed = status;
    if (when_closed) when_closed();
  }
  void note() {
    ++callbacks;
    called_inside = called_inside || is_inside_call;
    EXPECT_FALSE(closed.has_value()) << "a callback behind on_closed()";
  }

  std::unique_ptr<ReceiveChannel> channel;
  std::vector<Frame> frames;
  std::optional<Status> closed;
  std::function<void(const FrameHeader&, std::span<std::byte>)> when_frame;
  std::function<void()> when_closed;
  int callbacks = 0;
  bool is_inside_call = false;
  bool called_inside = false;
};

JobToken token_of(uint8_t seed);
ChannelId channel_id(uint64_t job = 7, uint32_t epoch = 3, int32_t from = 0, int32_t to = 1);
FrameHeader header_for(const ChannelId& id, uint32_t slot, uint64_t seq, size_t payload_bytes);

// Sets up two transports on one loop, which both listen, and channels from left to right.
class TransportConformance : public ::testing::TestWithParam<Fabric> {
 protected:
  TransportConformance();

  ConnectOptions connect_options(const ChannelId& id, uint32_t count, uint32_t bytes,
                                 SendEvents& events);
  AcceptOptions accept_options(const ChannelId& id, uint32_t count, uint32_t bytes, Region& memory,
                               ReceiveEvents& events);
  // Opens a channel and waits until both ends have it.
  void open(Writer& writer, Reader& reader, Region& slots, const ChannelId& id, uint32_t count,
            uint32_t bytes);
  void write(Writer& writer, const ChannelId& id, uint32_t slot, uint64_t seq,
             std::span<const SendBuffer> parts);

  Loop loop_;
  TransportFactory factory_ = GetParam().make_factory();
  std::unique_ptr<Transport> left_ = factory_(loop_.io());
  std::unique_ptr<Transport> right_ = factory_(loop_.io());
  std::string right_address_;
};

}  // namespace rueda::transport
