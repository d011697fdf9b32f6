// One reliable connection of a device: a queue pair with a completion queue of its own.
#pragma once

#include "daemon/transport/rdma/device.h"

#ifdef RUEDA_HAS_VERBS

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "daemon/transport/rdma/exchange.h"

namespace rueda::transport::rdma {

// The one who takes the completions of a queue pair.
class CompletionHandler {
 public:
  virtual ~CompletionHandler() = default;
  // Some may have come.
  virtual void on_completions() = 0;
};

class QueuePair final : private CompletionQueue {
 public:
  struct Sizes {
    uint32_t sends = 0;     // Work requests that may be posted and not completed.
    uint32_t receives = 0;  // Receives that may be posted and not completed.
    uint32_t parts = 1;     // Pieces of memory of one work request.
    uint32_t inline_bytes = 0;
  };

  // Makes a queue pair, of at most the sizes that the device allows. The caller hears of
  // completions once it has set a handler (set_handler()). `timeout_ms` is the failure timeout.
  static Result<std::unique_ptr<QueuePair>> make(LocalPort port, Sizes sizes, int64_t timeout_ms);
  // Ends all work at once: when the destructor returns, the device touches none of its memory.
  ~QueuePair() override;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // Fills in how this end is reached.
  void describe(Offer& offer) const;
  // Connects to the end that the peer's offer describes. Receives should be posted before.
  Status connect(const Offer& peer);

  // `handler` is called in turns of the loop in which completions may have come. With null
  // nobody is called.
  void set_handler(CompletionHandler* handler) { handler_ = handler; }
  // Moves completions into `found`, and returns how many. If there are none, the handler is called
  // when the next one has come; if there are, the caller has to poll again. A negative result means
  // that the device failed.
  int poll(std::span<ibv_wc> found);
  // Both return 0, or an errno value.
  int post(ibv_send_wr& first);
  int post(ibv_recv_wr& first);

  const Sizes& sizes() const { return sizes_; }
  Device& device() const { return *port_.device; }
  uint32_t max_message_bytes() const { return port_.attributes.max_msg_sz; }
  // Returns the bytes of a packet, once connected.
  uint32_t packet_bytes() const { return packet_bytes_; }

 private:
  QueuePair(LocalPort port, Sizes sizes, int64_t timeout_ms)
      : port_(std::move(port)), timeout_ms_(timeout_ms), sizes_(sizes) {
    port_.device->add_queue(*this);
  }
  void on_event() override {
    is_armed_ = false;
    look();
  }
  void look() override {
    if (handler_ != nullptr) handler_->on_completions();
  }
  Status make_queues();
  Status modify(ibv_qp_attr& attributes, int mask, const char* state);

  const LocalPort port_;
  const int64_t timeout_ms_;
  Sizes sizes_;
  CompletionHandler* handler_ = nullptr;
  bool is_armed_ = false;  // The next completion makes an event.
  ibv_cq* completions_ = nullptr;
  ibv_qp* pair_ = nullptr;
  uint32_t first_packet_ = 0;  // The number of this end's first packet, drawn at random.
  uint32_t packet_bytes_ = 0;
};

// Memory that a channel has registered for itself. It is deregistered at the end.
class RegisteredMemory {
 public:
  // Registers memory, which stays somebody else's. `access` has the meaning that it has for
  // ibv_reg_mr().
  static Result<std::unique_ptr<RegisteredMemory>> make(Device& device, std::span<std::byte> memory,
                                                        int access);
  ~RegisteredMemory() { device_->verbs().dereg_mr(region_); }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  uint32_t local_key() const { return region_->lkey; }
  uint32_t remote_key() const { return region_->rkey; }

 private:
  RegisteredMemory(std::shared_ptr<Device> device, ibv_mr* region)
      : device_(std::move(device)), region_(region) {}

  const std::shared_ptr<Device> device_;
  ibv_mr* const region_;
};

}  // namespace rueda::transport::rdma

#endif
