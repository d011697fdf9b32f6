#include "tests/gpu/fake/fake_communicator.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>

#include "tests/gpu/fake/fake_stream.h"
#include "tests/gpu/fake/reduce_batch.h"

namespace rueda::gpu::fake {
namespace {

constexpr size_t kNameBytes = 16;

// Returns the address of an id's socket, in the abstract namespace, which needs no file.
std::pair<sockaddr_un, socklen_t> address_of(const CommunicatorId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "rueda-fake-communicator-";
  for (size_t i = 0; i < kNameBytes; ++i) {
    name += kDigits[static_cast<uint8_t>(id[i]) >> 4];
    name += kDigits[static_cast<uint8_t>(id[i]) & 15];
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

UniqueFd make_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

template <class Value>
void append(std::vector<std::byte>& bytes, const Value& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

}  // namespace

Result<std::pair<CommunicatorId, UniqueFd>> make_meeting_place() {
  CommunicatorId id{};
  std::random_device random;
  for (size_t i = 0; i < kNameBytes; ++i) id[i] = static_cast<std::byte>(random());
  UniqueFd listener = make_socket();
  const auto [address, length] = address_of(id);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), 64) != 0) {
    return Status(Code::kUnavailable,
                  std::string("a fake communicator cannot listen: ") + std::strerror(errno));
  }
  return std::pair(id, std::move(listener));
}

FakeCommunicator::FakeCommunicator(FakeDevice& device, const CommunicatorId& id, int rank, int size,
                                   UniqueFd listener)
    : device_(device),
      id_(id),
      rank_(rank),
      size_(size),
      listener_(std::move(listener)),
      peers_(rank == 0 ? static_cast<size_t>(size) : 1) {}

FakeCommunicator::~FakeCommunicator() {
  const std::lock_guard lock(device_.gpu_.mutex_);
  lifetime_.end();
}

Status FakeCommunicator::health() {
  const std::lock_guard lock(device_.gpu_.mutex_);
  if (Status status = device_.enter("communicator_health"); !status.is_ok()) return status;
  return progress();
}

Status FakeCommunicator::progress() {
  if (failed_.is_ok() && !is_there_) return meet();
  return failed_;
}

void FakeCommunicator::fail(const std::string& what) {
  if (failed_.is_ok()) {
    failed_ = {Code::kNodeLost,
               "the fake communicator of member " + std::to_string(rank_) + ' ' + what};
  }
}

bool FakeCommunicator::flush(Peer& peer) {
  while (peer.sent < peer.outgoing.size()) {
    const ssize_t sent = ::send(peer.fd.get(), peer.outgoing.data() + peer.sent,
                                peer.outgoing.size() - peer.sent, MSG_NOSIGNAL);
    if (sent < 0 && would_block()) return false;
    if (sent < 0) {
      fail("has lost another");
      return false;
    }
    peer.sent += static_cast<size_t>(sent);
  }
  return true;
}

bool FakeCommunicator::fill(Peer& peer) {
  while (peer.received < peer.incoming.size()) {
    const ssize_t received = ::recv(peer.fd.get(), peer.incoming.data() + peer.received,
                                    peer.incoming.size() - peer.received, 0);
    if (received < 0 && would_block()) return false;
    if (received <= 0) {
      fail("has lost another");
      return false;
    }
    peer.received += static_cast<size_t>(received);
  }
  return true;
}

// The first member learns who the others are, and tells them when all are there.
Status FakeCommunicator::meet() {
  const Status not_yet(Code::kUnavailable, "others are yet to come");
  if (rank_ > 0) {
    Peer& first = peers_[0];
    if (!first.fd.is_open()) {
      UniqueFd socket = make_socket();
      const auto [address, length] = address_of(id_);
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
        return not_yet;
      }
      first.fd = std::move(socket);
      append(first.outgoing, rank_);
      first.incoming.resize(1);
    }
    is_there_ = flush(first) && fill(first);
    if (!failed_.is_ok()) return failed_;
    return is_there_ ? Status::ok() : not_yet;
  }
  for (;;) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) break;
    Peer& peer = nameless_.emplace_back();
    peer.fd = std::move(socket);
    peer.incoming.resize(sizeof rank_);
  }
  for (Peer& peer : nameless_) {
    if (!fill(peer)) continue;
    int rank = 0;
    std::memcpy(&rank, peer.incoming.data(), sizeof rank);
    if (rank <= 0 || rank >= size_ || peers_[static_cast<size_t>(rank)].fd.is_open()) {
      fail("was joined by one that it does not have");
      return failed_;
    }
    peers_[static_cast<size_t>(rank)].fd = std::move(peer.fd);
  }
  std::erase_if(nameless_, [](const Peer& peer) { return !peer.fd.is_open(); });
  const auto is_missing = [](const Peer& peer) { return !peer.fd.is_open(); };
  if (std::any_of(peers_.begin() + 1, peers_.end(), is_missing)) return not_yet;
  for (size_t rank = 1; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.outgoing.empty()) append(peer.outgoing, std::byte{1});
    if (!flush(peer)) return failed_.is_ok() ? not_yet : failed_;
  }
  is_there_ = true;
  return Status::ok();
}

Status FakeCommunicator::all_reduce(Stream& stream, DeviceAddress at, uint64_t count, DType dtype,
                                    ReduceOp op) {
  const bool is_known = !is_complex(dtype) && dtype != DType::kBool && dtype != DType::kInt16 &&
                        dtype != DType::kUInt16;
  if (op == ReduceOp::kAverage || op == ReduceOp::kAdasum || !is_known) {
    return {Code::kInvalidArgument, "a communicator has no such reduction"};
  }
  return queue(stream, at, count,
               {.bytes = count * element_bytes(dtype),
                .dtype = static_cast<uint32_t>(dtype),
                .op = static_cast<uint32_t>(op)});
}

Status FakeCommunicator::broadcast(Stream& stream, DeviceAddress at, uint64_t bytes, int root) {
  return queue(stream, at, bytes,
               {.bytes = bytes, .dtype = static_cast<uint32_t>(DType::kUInt8), .root = root});
}

Status FakeCommunicator::queue(Stream& stream, DeviceAddress at, uint64_t count, Call call) {
  const std::lock_guard lock(device_.gpu_.mutex_);
  auto& own = static_cast<FakeStream&>(stream);
  if (Status status = device_.enter("across", own); !status.is_ok()) return status;
  if (Status status = progress(); !status.is_ok()) return status;
  call.number = ++calls_;
  auto exchange = std::make_shared<Exchange>(Exchange{.call = call, .at = at, .count = count});
  own.queue(
      [this, exchange] {
        std::byte* const to = device_.resolve(exchange->at, exchange->call.bytes);
        if (to == nullptr) return device_.lose_at(exchange->at);
        std::memcpy(to, exchange->result.data(), exchange->result.size());
      },
      [this, exchange, life = lifetime_.watch()] { return life.lasts() && advance(*exchange); });
  return Status::ok();
}

std::vector<std::byte> FakeCommunicator::own_bytes(const Exchange& exchange) {
  const Call& call = exchange.call;
  if (call.root >= 0 && call.root != rank_) return {};
  const std::byte* const from = device_.resolve(exchange.at, call.bytes);
  if (from == nullptr) {
    device_.lose_at(exchange.at);
    return {};
  }
  return {from, from + call.bytes};
}

bool FakeCommunicator::advance(Exchange& exchange) {
  if (!failed_.is_ok()) return false;
  if (!exchange.has_begun) exchange.result = own_bytes(exchange);
  return rank_ == 0 ? advance_first(exchange) : advance_other(exchange);
}

bool FakeCommunicator::advance_other(Exchange& exchange) {
  Peer& first = peers_[0];
  if (!std::exchange(exchange.has_begun, true)) {
    first.outgoing.clear();
    append(first.outgoing, exchange.call);
    first.outgoing.insert(first.outgoing.end(), exchange.result.begin(), exchange.result.end());
    first.incoming.resize(exchange.call.bytes);
    first.sent = first.received = 0;
  }
  if (!flush(first) || !fill(first)) return false;
  exchange.result = first.incoming;
  return true;
}

bool FakeCommunicator::advance_first(Exchange& exchange) {
  const Call& call = exchange.call;
  if (!std::exchange(exchange.has_begun, true)) {
    for (int rank = 1; rank < size_; ++rank) {
      Peer& peer = peers_[static_cast<size_t>(rank)];
      const bool gives = call.root < 0 || call.root == rank;
      peer.incoming.resize(sizeof call + (gives ? call.bytes : 0));
      peer.received = 0;
    }
  }
  if (!exchange.has_answered) {
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!fill(peers_[rank])) return false;
    }
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      Call said;
      const std::vector<std::byte>& incoming = peers_[rank].incoming;
      std::memcpy(&said, incoming.data(), sizeof said);
      if (said != call) fail("was told something else by member " + std::to_string(rank));
      if (call.root == static_cast<int64_t>(rank)) {
        exchange.result.assign(incoming.begin() + sizeof said, incoming.end());
      } else if (call.root < 0) {
        add(exchange, incoming.data() + sizeof said, exchange.result.data());
      }
    }
    if (!failed_.is_ok()) {
      for (Peer& peer : peers_) peer.fd = UniqueFd();
      return false;
    }
    for (Peer& peer : peers_) {
      peer.outgoing = exchange.result;
      peer.sent = 0;
    }
    exchange.has_answered = true;
  }
  return std::all_of(peers_.begin() + 1, peers_.end(), [this](Peer& peer) { return flush(peer); });
}

// Here host addresses stand in for device addresses.
void FakeCommunicator::add(const Exchange& exchange, const std::byte* from, std::byte* to) const {
  const std::array sources{reinterpret_cast<DeviceAddress>(to),
                           reinterpret_cast<DeviceAddress>(from)};
  const std::array destinations{sources[0]};
  const Segment segment{.count = exchange.count, .sources = sources, .destinations = destinations};
  const Batch batch{.dtype = static_cast<DType>(exchange.call.dtype),
                    .op = static_cast<ReduceOp>(exchange.call.op),
                    .segments = {&segment, 1}};
  static_cast<void>(reduce_batch(
      batch, [](DeviceAddress at, uint64_t) { return reinterpret_cast<std::byte*>(at); }));
}

}  // namespace rueda::gpu::fake
