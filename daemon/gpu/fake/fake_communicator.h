// Communicators of fake devices: processes of this machine that talk over unix sockets, all of them
// with the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/gpu/fake/fake_device.h"

namespace rueda::gpu::fake {

class FakeStream;

// A socket that listens under the id's name, which is new.
Result<std::pair<CommunicatorId, UniqueFd>> make_meeting_place();

// What members give each other is checked: one that calls something else than the first fails it
// on all, where NCCL would hang or be wrong. An operation under way when a member goes never ends.
class FakeCommunicator final : public Communicator {
 public:
  // `listener`: of the first member. All under the GPU's mutex, but for the interface's functions.
  FakeCommunicator(FakeDevice& device, const CommunicatorId& id, int rank, int size,
                   UniqueFd listener);
  ~FakeCommunicator() override;

  Status health() override;
  Status all_reduce(Stream& stream, DeviceAddress at, uint64_t count, DType dtype,
                    ReduceOp op) override;
  Status broadcast(Stream& stream, DeviceAddress at, uint64_t bytes, int root) override;

 private:
  // What a member says before its bytes.
  struct Call {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint32_t dtype = 0;
    uint32_t op = 0;
    int64_t root = -1;
    bool operator==(const Call&) const = default;
  };
  // One end of a connection, and what is on its way over it.
  struct Peer {
    UniqueFd fd;
    std::vector<std::byte> outgoing;
    size_t sent = 0;
    std::vector<std::byte> incoming;  // as long as what is waited for
    size_t received = 0;
  };
  struct Exchange {
    Call call;
    DeviceAddress at = 0;
    uint64_t count = 0;
    bool has_begun = false;
    bool has_answered = false;  // the first member: the others get what it has come to
    std::vector<std::byte> result;
  };

  Status progress();
  Status meet();
  // False: not yet.
  bool flush(Peer& peer);
  bool fill(Peer& peer);
  void fail(const std::string& what);
  Status queue(Stream& stream, DeviceAddress at, uint64_t count, Call call);
  // Whether it is done; called until it is.
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
  std::vector<Peer> peers_;     // of the first member: by rank; of others: the first
  std::vector<Peer> nameless_;  // they have yet to say who they are
  bool is_there_ = false;
  Status failed_;
  uint64_t calls_ = 0;
  // Queued operations outlive the communicator, and never end then.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace rueda::gpu::fake
