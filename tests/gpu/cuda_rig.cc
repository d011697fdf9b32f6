// Brings CUDA into the suite: the plugin, and neighbours that are processes, because CUDA does not
// open a handle in the process that made it. A neighbour is this program again, and does what it is
// told over a socket.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/gpu/load.h"
#include "tests/gpu/rig.h"

namespace rueda::gpu {
namespace {

constexpr char kNeighbourFlag[] = "--gpu-neighbour=";  // its socket, a comma, the GPU's ordinal

struct Request {
  bool is_share = false;  // false: take_back
  uint8_t seed = 0;
  Sharing sharing = Sharing::kIpc;
  uint64_t bytes = 0;
};

struct Reply {
  Code code = Code::kOk;
  MemoryHandle handle;
  char message[200] = {};
};

bool send_reply(int socket, Reply& reply) {
  iovec part{&reply, sizeof reply};
  msghdr message{.msg_iov = &part, .msg_iovlen = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (reply.handle.fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    *header = {
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(header), &reply.handle.fd, sizeof(int));
  }
  return ::sendmsg(socket, &message, 0) == sizeof reply;
}

bool receive_reply(int socket, Reply& reply) {
  iovec part{&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof reply) return false;
  reply.handle.fd = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    std::memcpy(&reply.handle.fd, CMSG_DATA(header), sizeof(int));
  }
  return true;
}

Result<MemoryHandle> share(Device& device, const Request& request, DeviceAddress& last) {
  Result<DeviceAddress> at = device.allocate(request.bytes, request.sharing);
  if (!at.is_ok()) return at.status();
  last = at.value();
  const auto host = device.allocate_host(request.bytes);
  if (!host.is_ok()) return host.status();
  for (size_t i = 0; i < request.bytes; ++i) host.value()[i] = shared_byte(i, request.seed);
  const auto stream = device.make_stream(Priority::kLow);
  if (!stream.is_ok()) return stream.status();
  Status status = stream.value()->copy_to_device(last, host.value().data(), request.bytes);
  while (status.is_ok()) {
    const Result<bool> idle = stream.value()->is_idle();
    status = idle.status();
    if (idle.is_ok() && idle.value()) break;
  }
  if (!status.is_ok()) return status;
  return device.export_memory(last);
}

// Runs a neighbour until the other end of the socket is closed.
int run_neighbour(int socket, int ordinal) {
  const auto plugin = load_plugin();
  if (!plugin.is_ok()) return 1;
  const auto device = plugin.value()->open({.ordinal = ordinal});
  if (!device.is_ok()) return 1;
  DeviceAddress last = 0;
  Request request;
  while (::recv(socket, &request, sizeof request, 0) == sizeof request) {
    Reply reply;
    Status status;
    if (request.is_share) {
      const Result<MemoryHandle> handle = share(*device.value(), request, last);
      status = handle.status();
      if (handle.is_ok()) reply.handle = handle.value();
    } else {
      status = device.value()->free(last);
    }
    reply.code = status.code();
    status.message().copy(reply.message, sizeof reply.message - 1);
    if (!send_reply(socket, reply)) return 1;
    if (reply.handle.fd >= 0) ::close(reply.handle.fd);
  }
  return 0;
}

class CudaNeighbour final : public Neighbour {
 public:
  explicit CudaNeighbour(int ordinal) {
    int ends[2];
    RUEDA_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    socket_ = ends[0];
    const std::string flag =
        kNeighbourFlag + std::to_string(ends[1]) + ',' + std::to_string(ordinal);
    child_ = ::fork();
    RUEDA_CHECK(child_ >= 0);
    if (child_ == 0) {
      ::close(ends[0]);
      ::execl("/proc/self/exe", "gpu-neighbour", flag.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
  }
  ~CudaNeighbour() override {
    ::close(socket_);
    ::waitpid(child_, nullptr, 0);
  }

  Result<MemoryHandle> share(size_t bytes, uint8_t seed, Sharing sharing) override {
    Reply reply;
    const Status status =
        ask({.is_share = true, .seed = seed, .sharing = sharing, .bytes = bytes}, reply);
    if (!status.is_ok()) return status;
    return reply.handle;
  }
  Status take_back() override {
    Reply reply;
    return ask({}, reply);
  }

 private:
  Status ask(const Request& request, Reply& reply) {
    if (::send(socket_, &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
        !receive_reply(socket_, reply)) {
      return {Code::kRankLost, "the neighbour has gone"};
    }
    return {reply.code, reply.message};
  }

  int socket_ = -1;
  pid_t child_ = -1;
};

class CudaRig final : public Rig {
 public:
  CudaRig(const PluginTable& plugin, std::unique_ptr<Device> device)
      : plugin_(plugin), device_(std::move(device)) {}
  Device& device() override { return *device_; }
  Result<Device*> peer() override {
    if (!peer_) {
      Result<std::unique_ptr<Device>> opened = plugin_.open({.ordinal = 1});
      if (!opened.is_ok()) return opened.status();
      peer_ = std::move(opened).value();
    }
    const Status status = device_->can_reach(peer_->facts());
    if (!status.is_ok()) return status;
    return peer_.get();
  }
  void wait_a_little() override { std::this_thread::sleep_for(std::chrono::microseconds(50)); }
  std::unique_ptr<Neighbour> make_neighbour(bool is_peers) override {
    return std::make_unique<CudaNeighbour>(is_peers ? 1 : 0);
  }

 private:
  const PluginTable& plugin_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Device> peer_;
};

}  // namespace

RigMaker cuda_rig() {
  return {"cuda", [](const DeviceOptions& options) -> Result<std::unique_ptr<Rig>> {
            const auto plugin = load_plugin();
            if (!plugin.is_ok()) return plugin.status();
            auto device = plugin.value()->open(options);
            if (!device.is_ok()) return device.status();
            return std::unique_ptr<Rig>(
                std::make_unique<CudaRig>(*plugin.value(), std::move(device).value()));
          }};
}

}  // namespace rueda::gpu

int main(int argc, char** argv) {
  using rueda::gpu::kNeighbourFlag;
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.rfind(kNeighbourFlag, 0) == 0) {
    const char* const numbers = first.c_str() + std::strlen(kNeighbourFlag);
    return rueda::gpu::run_neighbour(std::atoi(numbers), std::atoi(std::strchr(numbers, ',') + 1));
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
