#include "tests/conformance/transport_harness.h"

#include <cstdlib>

#include "daemon/transport/grpc/grpc_transport.h"
#include "daemon/transport/rdma/rdma_upgrader.h"
#include "daemon/transport/striped.h"
#include "daemon/transport/tcp/tcp_transport.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::transport {

namespace {

Fabric striped(const Fabric& inner, uint32_t streams) {
  Fabric fabric = inner;
  fabric.name += "_x" + std::to_string(streams);
  fabric.make_factory = [make_factory = inner.make_factory, streams] {
    return [factory = make_factory(), streams](boost::asio::io_context& io) {
      return make_striped_transport(io, factory(io), streams);
    };
  };
  return fabric;
}

// Returns the fabric that can upgrade to RDMA, at an address without RDMA, such as loopback: both
// ends find that out, and the channel is over TCP.
std::optional<Fabric> fallback_fabric() {
  const auto make_upgrader = [](boost::asio::io_context& io) {
    Status why;
    return make_rdma_upgrader(io, {}, why);
  };
  boost::asio::io_context probe;
  if (make_upgrader(probe) == nullptr) return std::nullopt;
  return Fabric{"rdma_else_tcp", "127.0.0.1:0", "127.0.0.1:1", [make_upgrader] {
                  return [make_upgrader](boost::asio::io_context& io) {
                    return make_tcp_transport(io, {}, make_upgrader(io));
                  };
                }};
}

// Returns the fabric with RDMA, if a device has the address that RUEDA_TEST_RDMA_ADDRESS names, as
// in tests/rdma. A channel that is over TCP then fails. With a time to poll, the loop polls.
std::optional<Fabric> rdma_fabric(std::chrono::microseconds poll) {
  const char* const address = std::getenv("RUEDA_TEST_RDMA_ADDRESS");
  if (address == nullptr) return std::nullopt;
  const std::string host = address;
  const std::string name = poll.count() > 0 ? "rdma_polled" : "rdma";
  return Fabric{name, host + ":0", host + ":1", [poll] {
                  return [poll](boost::asio::io_context& io) {
                    Status why;
                    RdmaOptions options;
                    options.is_required = true;
                    options.poll = poll;
                    auto upgrader = make_rdma_upgrader(io, std::move(options), why);
                    EXPECT_TRUE(why.is_ok()) << why.message();
                    return make_tcp_transport(io, {}, std::move(upgrader));
                  };
                }};
}

}  // namespace

std::vector<Fabric> all_fabrics() {
  const Fabric mem{"mem", "mem:0", "mem:999999", [] {
                     return [network = make_mem_network()](boost::asio::io_context& io) {
                       return make_mem_transport(io, network);
                     };
                   }};
  // Port 1 is privileged, and nobody has served tcpmux for decades.
  const Fabric tcp{"tcp", "127.0.0.1:0", "127.0.0.1:1", [] {
                     return [](boost::asio::io_context& io) { return make_tcp_transport(io); };
                   }};
  const Fabric tcp6{"tcp6", "[::1]:0", "[::1]:1", tcp.make_factory};
  std::vector<Fabric> fabrics{mem, tcp, striped(mem, 4), striped(tcp, 2), striped(tcp, 4)};
  const Fabric grpc{"grpc", "127.0.0.1:0", "127.0.0.1:1", [] {
                      return [](boost::asio::io_context& io) { return make_grpc_transport(io); };
                    }};
  fabrics.push_back(grpc);
  fabrics.push_back(striped(grpc, 2));
  for (const Protection protection : {Protection::kAuthenticate, Protection::kEncrypt}) {
    const TcpOptions options{.protection = protection};
    const std::string of = std::string("_") + to_string(protection);
    const Fabric sealed{"tcp" + of, tcp.any_address, tcp.dead_address,
                        [options] {
                          return [options](boost::asio::io_context& io) {
                            return make_tcp_transport(io, options);
                          };
                        },
                        true};
    fabrics.push_back(sealed);
    if (protection == Protection::kEncrypt) fabrics.push_back(striped(sealed, 2));
    fabrics.push_back({"grpc" + of, grpc.any_address, grpc.dead_address,
                       [options] {
                         return [options](boost::asio::io_context& io) {
                           return make_grpc_transport(io, options);
                         };
                       },
                       true});
  }
  boost::asio::io_context probe;
  if (make_tcp_transport(probe)->listen(tcp6.any_address).is_ok()) fabrics.push_back(tcp6);
  if (const std::optional<Fabric> fallback = fallback_fabric()) fabrics.push_back(*fallback);
  if (const std::optional<Fabric> rdma = rdma_fabric({})) fabrics.push_back(*rdma);
  if (const std::optional<Fabric> polled = rdma_fabric(std::chrono::microseconds(100))) {
    fabrics.push_back(striped(*polled, 2));
  }
  return fabrics;
}

JobToken token_of(uint8_t seed) {
  JobToken token;
  for (size_t i = 0; i < token.size(); ++i) token[i] = std::byte(seed + i);
  return token;
}

ChannelId channel_id(uint64_t job, uint32_t epoch, int32_t from, int32_t to) {
  return {JobKey(job), epoch, from, to, 0};
}

FrameHeader header_for(const ChannelId& id, uint32_t slot, uint64_t seq, size_t payload_bytes) {
  FrameHeader header;
  header.job = id.job.first;
  header.epoch = id.epoch;
  header.slot = slot;
  header.seq = seq;
  header.payload_bytes = static_cast<uint32_t>(payload_bytes);
  return header;
}

TransportConformance::TransportConformance() {
  const Result<std::string> address = right_->listen(GetParam().any_address);
  EXPECT_TRUE(address.is_ok()) << address.status().to_string();
  right_address_ = address.value();
}

ConnectOptions TransportConformance::connect_options(const ChannelId& id, uint32_t count,
                                                     uint32_t bytes, SendEvents& events) {
  ConnectOptions options;
  options.address = right_address_;
  options.id = id;
  options.token = token_of(1);
  options.slot_count = count;
  options.slot_bytes = bytes;
  options.timeout_ms = kLongMs;
  options.events = &events;
  return options;
}

AcceptOptions TransportConformance::accept_options(const ChannelId& id, uint32_t count,
                                                   uint32_t bytes, Region& memory,
                                                   ReceiveEvents& events) {
  AcceptOptions options;
  options.id = id;
  options.token = token_of(1);
  options.slots = {memory.data(), count, bytes, memory.key()};
  options.timeout_ms = kLongMs;
  options.events = &events;
  return options;
}

void TransportConformance::open(Writer& writer, Reader& reader, Region& slots, const ChannelId& id,
                                uint32_t count, uint32_t bytes) {
  right_->expect(accept_options(id, count, bytes, slots, reader),
                 [&](Result<std::unique_ptr<ReceiveChannel>> result) {
                   ASSERT_TRUE(result.is_ok()) << result.status().to_string();
                   reader.channel = std::move(result).value();
                 });
  left_->connect(connect_options(id, count, bytes, writer),
                 [&](Result<std::unique_ptr<SendChannel>> result) {
                   ASSERT_TRUE(result.is_ok()) << result.status().to_string();
                   writer.channel = std::move(result).value();
                 });
  ASSERT_TRUE(loop_.run_until([&] { return writer.channel && reader.channel; }));
}

void TransportConformance::write(Writer& writer, const ChannelId& id, uint32_t slot, uint64_t seq,
                                 std::span<const SendBuffer> parts) {
  size_t bytes = 0;
  for (const SendBuffer& part : parts) bytes += part.bytes;
  writer.is_inside_call = true;
  writer.channel->write(header_for(id, slot, seq, bytes), parts, seq);
  writer.is_inside_call = false;
}

}  // namespace rueda::transport
