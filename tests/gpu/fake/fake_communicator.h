// Communicators of fake devices: processes of this machine that talk over unix sockets, all of them
// with the first member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/lifetime.h"
#include "tests/gpu/fake/fake_device.h"

namespace rueda::gpu::fake {

class FakeStream;

// Makes a new id, and a socket that listens under the id's name.
Result<std::pair<CommunicatorId, UniqueFd>> make_meeting_place();

// Members' calls are compared: a member that makes another call than the first member fails the
// communicator on all members, where NCCL would hang or give wrong results. An operation under way
// when a member goes never ends.
class FakeCommunicator final : public Communicator {
 public:
  // `listener` is for the first member. All functions are called under the GPU's mutex, except for
  // those of the interface.
  FakeCommunicator(FakeDevice& device, const CommunicatorId& id, int rank, int size,
                   UniqueFd listener);
  ~FakeCommunicator() override;

  Status health() override;
  Status all_reduce(Stream& stream, DeviceAddress at, uint64_t count, DType dtype,
                    ReduceOp op) override;
  Status broadcast(Stream& stream, DeviceAddress at, uint64_t bytes, int root) override;

 private:
  // The call that a member announces before its bytes.
  struct Call {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint32_t dtype = 0;
    uint32_t op = 0;
    int64_t root = -1;
    bool operator==(const Call&) const = default;
  };
  // One end of a connection, and the bytes on their way over it.
  struct Peer {
    UniqueFd fd;
    std::vector<std::byte> outgoing;
    size_t sent = 0;
    std::vector<std::byte> incoming;  // as long as the bytes that are waited for
    size_t received = 0;
  };
  struct Exchange {
    Call call;
    DeviceAddress at = 0;
    uint64_t count = 0;
    bool has_begun = false;
    bool has_answered = false;  // on the first member: the others are being sent the result
    std::vector<std::byte> result;
  };

  Status progress();
  Status meet();
  // Sends, or receives, as much as possible. Returns false if not everything is done yet.
  bool flush(Peer& peer);
  bool fill(Peer& peer);
  void fail(const std::string& what);
  Status queue(Stream& stream, DeviceAddress at, uint64_t count, Call call);
  // Goes on with an exchange. Returns true if it is done; called until it is.
  bool advance(Exchange& exchange);
  bool advance_first(Exchange& exchange);
  bool advance_other(Exchange& exchange);
  std::vector<std::byte> own_bytes(const Exchange& exchange);
  void add(const Exchange& exchange, const std::byte* from, std::byte* to) const;

  FakeDevice& device_;
  const CommunicatorId id_;
  const int rank_;
  const int size_;
  UniqueFd listener_;
  // on the first member: the others, by rank; on others: the first member
  std::vector<Peer> peers_;
  std::vector<Peer> nameless_;  // connections that have yet to say which member they are
  bool is_there_ = false;
  Status failed_;
  uint64_t calls_ = 0;
  // Queued operations outlive the communicator, and then never end.
  Lifetime lifetime_;
};

}  // namespace rueda::gpu::fake
