#include "daemon/transport/rdma/queue_pair.h"

#ifdef RUEDA_HAS_VERBS

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <openssl/rand.h>

#include "daemon/base/check.h"
#include "daemon/transport/rdma/patience.h"

namespace rueda::transport::rdma {

namespace {

// A reader that has no receive posted is asked again, for ever: it may stand still, and others
// decide what that means.
constexpr uint8_t kRetriesUntilReceive = 7;
constexpr uint8_t kReceiveTimer = 12;  // The pause until then is 0.64 ms.

uint32_t random_packet_number() {
  uint32_t number = 0;
  RUEDA_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&number), sizeof(number)) == 1);
  return number & 0xffffff;
}

uint32_t bytes_of(ibv_mtu mtu) { return 128u << mtu; }

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::make(LocalPort port, Sizes sizes,
                                                   int64_t timeout_ms) {
  const ibv_device_attr& device = port.device->attributes();
  const auto bounded = [](uint32_t wanted, int most) {
    return std::min(wanted, static_cast<uint32_t>(std::max(most, 1)));
  };
  sizes.sends = bounded(sizes.sends, device.max_qp_wr);
  sizes.receives = bounded(sizes.receives, device.max_qp_wr);
  sizes.parts = bounded(sizes.parts, device.max_sge);
  std::unique_ptr<QueuePair> pair(new QueuePair(std::move(port), sizes, timeout_ms));
  if (Status status = pair->make_queues(); !status.is_ok()) return status;
  return pair;
}

Status QueuePair::make_queues() {
  Device& device = *port_.device;
  const auto failed = [&](const char* what) {
    return Status(Code::kResourceExhausted, "the RDMA device " + device.name() + " makes no " +
                                                what + ": " + std::strerror(errno));
  };
  CompletionQueue* const self = this;
  completions_ = device.verbs().create_cq(
      device.context(), static_cast<int>(sizes_.sends + sizes_.receives), self, device.events(), 0);
  if (completions_ == nullptr) return failed("completion queue");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions_;
  attributes.recv_cq = completions_;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = sizes_.sends;
  attributes.cap.max_recv_wr = sizes_.receives;
  attributes.cap.max_send_sge = sizes_.parts;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = sizes_.inline_bytes;
  pair_ = device.verbs().create_qp(device.domain(), &attributes);
  if (pair_ == nullptr && sizes_.inline_bytes > 0) {
    sizes_.inline_bytes = attributes.cap.max_inline_data = 0;
    pair_ = device.verbs().create_qp(device.domain(), &attributes);
  }
  if (pair_ == nullptr) return failed("queue pair");
  first_packet_ = random_packet_number();
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = port_.port;
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  return modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

QueuePair::~QueuePair() {
  const Verbs& verbs = port_.device->verbs();
  port_.device->remove_queue(*this);
  if (pair_ != nullptr) verbs.destroy_qp(pair_);
  if (completions_ != nullptr) verbs.destroy_cq(completions_);
}

Status QueuePair::modify(ibv_qp_attr& attributes, int mask, const char* state) {
  const int error = port_.device->verbs().modify_qp(pair_, &attributes, mask);
  if (error == 0) return Status::ok();
  return {Code::kUnavailable, "the RDMA device " + port_.device->name() +
                                  " cannot bring a queue pair to the state " + state + ": " +
                                  std::strerror(error)};
}

void QueuePair::describe(Offer& offer) const {
  offer.is_able = 1;
  offer.is_infiniband = port_.attributes.link_layer == IBV_LINK_LAYER_INFINIBAND ? 1 : 0;
  offer.mtu = static_cast<uint8_t>(port_.attributes.active_mtu);
  offer.pair = pair_->qp_num;
  offer.first_packet = first_packet_;
  std::memcpy(offer.gid.data(), port_.gid.raw, offer.gid.size());
  offer.lid = port_.attributes.lid;
}

Status QueuePair::connect(const Offer& peer) {
  const bool is_infiniband = port_.attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
  if (is_infiniband != (peer.is_infiniband != 0)) {
    return {Code::kUnavailable, "one end is on InfiniBand and the other on Ethernet"};
  }
  const auto mtu = std::min(port_.attributes.active_mtu, static_cast<ibv_mtu>(peer.mtu));
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) {
    return {Code::kUnavailable, "the peer speaks of an MTU that does not exist"};
  }
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = mtu;
  ready.dest_qp_num = peer.pair;
  ready.rq_psn = peer.first_packet;
  ready.min_rnr_timer = kReceiveTimer;
  ready.ah_attr.port_num = port_.port;
  ready.ah_attr.dlid = peer.lid;
  if (!is_infiniband) {
    ready.ah_attr.is_global = 1;
    ready.ah_attr.grh.sgid_index = port_.gid_index;
    ready.ah_attr.grh.hop_limit = 64;
    std::memcpy(ready.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  }
  const Status to_receive =
      modify(ready,
             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
             "RTR");
  if (!to_receive.is_ok()) return to_receive;
  packet_bytes_ = bytes_of(mtu);
  ibv_qp_attr sending{};
  sending.qp_state = IBV_QPS_RTS;
  sending.timeout = ack_timeout_of(timeout_ms_);
  sending.retry_cnt = kRetries;
  sending.rnr_retry = kRetriesUntilReceive;
  sending.sq_psn = first_packet_;
  return modify(sending,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "RTS");
}

// Completions that come between a look and the arming make no event, so the queue is looked into
// once more. While the device polls it looks by itself, and nothing is armed.
int QueuePair::poll(std::span<ibv_wc> found) {
  const auto most = static_cast<int>(found.size());
  const int count = ibv_poll_cq(completions_, most, found.data());
  if (count > 0) port_.device->note_work();
  if (count != 0 || is_armed_ || port_.device->is_polling()) return count;
  if (ibv_req_notify_cq(completions_, 0) != 0) return -1;
  is_armed_ = true;
  return ibv_poll_cq(completions_, most, found.data());
}

int QueuePair::post(ibv_send_wr& first) {
  port_.device->note_work();
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(pair_, &first, &refused);
}

int QueuePair::post(ibv_recv_wr& first) {
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(pair_, &first, &refused);
}

Result<std::unique_ptr<RegisteredMemory>> RegisteredMemory::make(Device& device,
                                                                 std::span<std::byte> memory,
                                                                 int access) {
  const Result<ibv_mr*> region = device.register_memory(memory, access);
  if (!region.is_ok()) return region.status();
  return std::unique_ptr<RegisteredMemory>(
      new RegisteredMemory(device.shared_from_this(), region.value()));
}

}  // namespace rueda::transport::rdma

#endif
