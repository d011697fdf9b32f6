// The communicators of a job that leaves it to NCCL what goes between nodes: one for each process
// set, from the set's first batch on. The set's first node makes the id, and all nodes of the job
// pass it on. They belong to the control loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/engine/device/device_job.h"
#include "daemon/engine/device/device_operation.h"
#include "daemon/observe/metrics.h"

namespace rueda::engine {

struct NcclSetsOptions {
  std::string who;               // "job j on node n", in sentences
  TicksMs connect_timeout_ms{};  // The time for all nodes' workers to find each other.
};

class NcclSets {
 public:
  // A node's place in a set.
  struct Place {
    int rank = 0;
    int size = 0;
  };
  using SendId = std::function<void(uint32_t process_set, const gpu::CommunicatorId&)>;
  // Tells that a batch may be given to the worker, or why it cannot.
  using There = std::function<void(const Result<NcclPlace>&)>;

  // `device` must outlive this object, and have a worker. `send_id` sends an id to all other nodes.
  NcclSets(DeviceJob& device, observe::Metrics& metrics, NcclSetsOptions options, SendId send_id);
  ~NcclSets();
  NcclSets(const NcclSets&) = delete;
  NcclSets& operator=(const NcclSets&) = delete;

  // Sees to it that the set has a communicator for its next batch, and calls `there` when it has
  // one, or cannot get one. `there` may be called from within, and is called in the order of the
  // calls.
  void use(uint32_t process_set, const Place& place, There there);
  // Takes the communicator's id of a set that this node is in, which another node has made. It may
  // come before use().
  void on_id(uint32_t process_set, const gpu::CommunicatorId& id);
  // Forgets the set, which is no more; nothing of it is under way.
  void drop(uint32_t process_set);

 private:
  struct Set {
    uint32_t communicator = 0;  // 0 if use() has not been called.
    uint32_t stream = 0;
    Place place;
    std::optional<gpu::CommunicatorId> id;
    bool is_connected = false;
    Status failed;
    std::vector<There> waiting;
  };

  // Returns a stream for one more set, or none if there are too many.
  std::optional<uint32_t> free_stream() const;
  void begin(uint32_t process_set, Set& set);
  void connect(uint32_t process_set, Set& set);
  void fail(Set& set, const Status& status);
  static void tell(Set& set, const Result<NcclPlace>& there);

  DeviceJob& device_;
  observe::Metrics& metrics_;
  const NcclSetsOptions options_;
  const SendId send_id_;
  std::map<uint32_t, Set> sets_;
  uint32_t last_communicator_ = 0;
};

}  // namespace rueda::engine
