#include "daemon/transport/rdma/device.h"

#ifdef RUEDA_HAS_VERBS

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include "daemon/base/check.h"

namespace rueda::transport::rdma {

namespace {

std::string reason_of(int error) { return std::strerror(error); }

Status cannot_register(const std::string& device, size_t bytes, int error) {
  std::string text = "the RDMA device " + device + " cannot register " + std::to_string(bytes) +
                     " bytes: " + reason_of(error);
  rlimit limit{};
  if (error == ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY) {
    text += "; this process may lock " + std::to_string(limit.rlim_cur >> 10) +
            " KiB of memory: raise it (LimitMEMLOCK=infinity in the systemd unit, ulimit -l)";
  }
  return {Code::kResourceExhausted, std::move(text)};
}

// Returns the address as a GID has it: an IPv4 address is mapped into IPv6.
std::array<uint8_t, 16> gid_bytes(const boost::asio::ip::address& address) {
  if (address.is_v6()) return address.to_v6().to_bytes();
  const auto mapped = boost::asio::ip::make_address_v6(boost::asio::ip::v4_mapped, address.to_v4());
  return mapped.to_bytes();
}

// Returns true if the GID is an address of that family which is not of its link alone.
bool is_of_family(const ibv_gid& gid, const boost::asio::ip::address& address) {
  boost::asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), gid.raw, bytes.size());
  const boost::asio::ip::address_v6 found(bytes);
  return found.is_v4_mapped() == address.is_v4() && !found.is_link_local() &&
         !found.is_unspecified();
}

// Returns the name of the network interface with the address, or "".
std::string interface_of(const boost::asio::ip::address& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string name;
  for (const ifaddrs* item = list; item != nullptr && name.empty(); item = item->ifa_next) {
    if (item->ifa_addr == nullptr) continue;
    if (item->ifa_addr->sa_family == AF_INET && address.is_v4()) {
      const auto* const found = reinterpret_cast<const sockaddr_in*>(item->ifa_addr);
      if (ntohl(found->sin_addr.s_addr) == address.to_v4().to_uint()) name = item->ifa_name;
    } else if (item->ifa_addr->sa_family == AF_INET6 && address.is_v6()) {
      const auto* const found = reinterpret_cast<const sockaddr_in6*>(item->ifa_addr);
      const auto bytes = address.to_v6().to_bytes();
      if (std::memcmp(&found->sin6_addr, bytes.data(), bytes.size()) == 0) name = item->ifa_name;
    }
  }
  ::freeifaddrs(list);
  return name;
}

}  // namespace

// --- Device --------------------------------------------------------------------------------------

Result<std::shared_ptr<Device>> Device::open(boost::asio::io_context& io, const Verbs& verbs,
                                             ibv_device* device, std::chrono::microseconds poll) {
  std::shared_ptr<Device> opened(new Device(io, verbs, verbs.get_device_name(device), poll));
  if (Status status = opened->set_up(device); !status.is_ok()) return status;
  opened->wait();
  return opened;
}

Status Device::set_up(ibv_device* device) {
  const auto failed = [&](const char* what) {
    return Status(Code::kUnavailable,
                  "the RDMA device " + name_ + " " + what + ": " + reason_of(errno));
  };
  context_ = verbs_.open_device(device);
  if (context_ == nullptr) return failed("cannot be opened");
  if (const int error = verbs_.query_device(context_, &attributes_); error != 0) {
    errno = error;
    return failed("does not say what it can do");
  }
  domain_ = verbs_.alloc_pd(context_);
  if (domain_ == nullptr) return failed("gives no protection domain");
  events_ = verbs_.create_comp_channel(context_);
  if (events_ == nullptr) return failed("gives no completion channel");
  const int flags = ::fcntl(events_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(events_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return failed("has a completion channel that blocks");
  }
  readable_.assign(events_->fd);
  return Status::ok();
}

Device::~Device() {
  for (const auto& [key, region] : regions_) verbs_.dereg_mr(region);
  if (readable_.is_open()) readable_.release();  // The completion channel closes the descriptor.
  if (events_ != nullptr) verbs_.destroy_comp_channel(events_);
  if (domain_ != nullptr) verbs_.dealloc_pd(domain_);
  if (context_ != nullptr) verbs_.close_device(context_);
}

void Device::wait() {
  readable_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                       [weak = weak_from_this()](const boost::system::error_code& error) {
                         const std::shared_ptr<Device> self = weak.lock();
                         if (error || self == nullptr) return;
                         self->take_events();
                         self->wait();
                       });
}

// Takes events. A queue is destroyed only when all its events are acknowledged, so each event is
// acknowledged before its queue hears of it, whose handler may destroy any queue.
void Device::take_events() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (verbs_.get_cq_event(events_, &queue, &context) == 0) {
    verbs_.ack_cq_events(queue, 1);
    static_cast<CompletionQueue*>(context)->on_event();
  }
}

void Device::remove_queue(CompletionQueue& queue) {
  const auto found = std::find(queues_.begin(), queues_.end(), &queue);
  if (found == queues_.end()) return;
  if (is_looking_) {
    *found = nullptr;
  } else {
    queues_.erase(found);
  }
}

void Device::note_work() {
  if (poll_.count() == 0) return;
  poll_until_ = std::chrono::steady_clock::now() + poll_;
  if (!std::exchange(is_polling_, true)) look_again();
}

// Looks into all queues in a fresh turn, so that everybody else on the loop has turns in between.
// When the time is over, the queues are looked into once more, and armed by that.
void Device::look_again() {
  boost::asio::post(io_, [weak = weak_from_this()] {
    const std::shared_ptr<Device> self = weak.lock();
    if (self == nullptr) return;
    self->is_polling_ = std::chrono::steady_clock::now() < self->poll_until_;
    self->look_into_all();
    if (self->is_polling_) self->look_again();
  });
}

void Device::look_into_all() {
  is_looking_ = true;
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i] != nullptr) queues_[i]->look();
  }
  is_looking_ = false;
  std::erase(queues_, nullptr);
}

Result<ibv_mr*> Device::register_memory(std::span<std::byte> memory, int access) const {
  ibv_mr* const region = verbs_.reg_mr(domain_, memory.data(), memory.size(), access);
  if (region == nullptr) return cannot_register(name_, memory.size(), errno);
  return region;
}

Status Device::add_region(RegionKey key, std::span<std::byte> memory) {
  if (regions_.contains(key.value)) return Status::ok();
  const Result<ibv_mr*> region = register_memory(memory, 0);
  if (!region.is_ok()) return region.status();
  regions_.emplace(key.value, region.value());
  return Status::ok();
}

Status Device::add_device_memory(RegionKey key, const DeviceMemory& memory, const std::byte* base) {
  if (regions_.contains(key.value)) return Status::ok();
  if (verbs_.reg_dmabuf_mr == nullptr) {
    return {Code::kUnavailable,
            "libibverbs is older than rdma-core 34, and has no function for dma-bufs"};
  }
  ibv_mr* const region = verbs_.reg_dmabuf_mr(domain_, memory.offset, memory.bytes,
                                              reinterpret_cast<uint64_t>(base), memory.fd, 0);
  if (region == nullptr) {
    return {Code::kUnavailable,
            "the RDMA device " + name_ +
                " cannot read a dma-buf of another device: " + reason_of(errno)};
  }
  regions_.emplace(key.value, region);
  return Status::ok();
}

void Device::remove_region(RegionKey key) {
  const auto found = regions_.find(key.value);
  if (found == regions_.end()) return;
  verbs_.dereg_mr(found->second);
  regions_.erase(found);
}

uint32_t Device::local_key(RegionKey key) const {
  const auto found = regions_.find(key.value);
  RUEDA_CHECK(found != regions_.end());
  return found->second->lkey;
}

// --- Devices -------------------------------------------------------------------------------------

Status Devices::is_viable() const {
  int count = 0;
  ibv_device** const list = verbs_.get_device_list(&count);
  if (list == nullptr || count == 0) {
    const std::string reason = list == nullptr ? ": " + reason_of(errno) : "";
    if (list != nullptr) verbs_.free_device_list(list);
    return {Code::kNotFound, "this machine has no RDMA device" + reason};
  }
  std::string names;
  for (int i = 0; i < count; ++i) {
    names += (i > 0 ? ", " : "") + std::string(verbs_.get_device_name(list[i]));
  }
  Status status;
  for (const std::string& rail : options_.rails) {
    const bool is_there = std::any_of(list, list + count, [&](ibv_device* device) {
      return rail == verbs_.get_device_name(device);
    });
    if (!is_there && status.is_ok()) {
      status = {Code::kNotFound, "this machine has no RDMA device " + rail + "; it has " + names};
    }
  }
  verbs_.free_device_list(list);
  return status;
}

// Opens all devices. A device that cannot be opened is ignored, unless there is no other.
Status Devices::open_all() {
  if (is_open_) return Status::ok();
  if (Status status = is_viable(); !status.is_ok()) return status;
  int count = 0;
  ibv_device** const list = verbs_.get_device_list(&count);
  Status failed;
  for (int i = 0; i < count; ++i) {
    Result<std::shared_ptr<Device>> device = Device::open(io_, verbs_, list[i], options_.poll);
    if (device.is_ok()) {
      devices_.push_back(std::move(device).value());
    } else if (failed.is_ok()) {
      failed = device.status();
    }
  }
  verbs_.free_device_list(list);
  is_registered_.resize(devices_.size());
  is_open_ = !devices_.empty();
  return is_open_ ? Status::ok() : failed;
}

Result<LocalPort> Devices::find(const boost::asio::ip::address& local, uint32_t number) {
  if (Status status = open_all(); !status.is_ok()) return status;
  Result<Found> found =
      rails() == 0 ? find_by_address(local) : find_rail(local, options_.rails[number % rails()]);
  if (!found.is_ok()) return found.status();
  if (Status status = register_all(found.value().device); !status.is_ok()) return status;
  return std::move(found).value().port;
}

Status Devices::register_all(size_t device) {
  if (is_registered_[device]) return Status::ok();
  for (const auto& [key, memory] : regions_) {
    const Status status = devices_[device]->add_region(RegionKey{key}, memory);
    if (!status.is_ok()) return status;
  }
  for (const auto& [key, kept] : device_memories_) {
    static_cast<void>(devices_[device]->add_device_memory(RegionKey{key}, kept.memory, kept.base));
  }
  is_registered_[device] = true;
  return Status::ok();
}

Result<Devices::Found> Devices::find_rail(const boost::asio::ip::address& local,
                                          const std::string& name) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->name() != name) continue;
    if (std::optional<LocalPort> port = find_port(devices_[i], local, true)) {
      return Found{i, std::move(*port)};
    }
    return Status(Code::kNotFound, "the RDMA device " + name + " has no active port with an " +
                                       (local.is_v4() ? "IPv4" : "IPv6") +
                                       " address, such as the one by which the peer is reached");
  }
  return Status(Code::kNotFound, "the RDMA device " + name + " cannot be opened");
}

Result<Devices::Found> Devices::find_by_address(const boost::asio::ip::address& local) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (std::optional<LocalPort> port = find_port(devices_[i], local, false)) {
      return Found{i, std::move(*port)};
    }
  }
  return Status(Code::kNotFound, "no RDMA device of this machine has the address " +
                                     local.to_string() +
                                     ", by which the peer is reached: give daemons addresses of "
                                     "the network that the device is on");
}

// With RoCE a port has a GID for each address of its network interface. With InfiniBand the
// interface (IPoIB) is the device's, and the port is known by its LID.
std::optional<LocalPort> Devices::find_port(const std::shared_ptr<Device>& device,
                                            const boost::asio::ip::address& local,
                                            bool is_any) const {
  const std::array<uint8_t, 16> wanted = gid_bytes(local);
  std::optional<LocalPort> best;
  for (uint8_t port = 1; port <= device->attributes().phys_port_cnt; ++port) {
    LocalPort found{device, port, 0, {}, {}};
    if (verbs_.query_port(device->context(), port, &found.attributes) != 0) continue;
    if (found.attributes.state != IBV_PORT_ACTIVE) continue;
    if (found.attributes.link_layer == IBV_LINK_LAYER_INFINIBAND) {
      const std::filesystem::path interface = "/sys/class/net/" + interface_of(local);
      std::error_code error;
      if (!is_any &&
          !std::filesystem::exists(interface / "device/infiniband" / device->name(), error)) {
        continue;
      }
      ibv_gid_entry entry{};
      if (verbs_.query_gid_entry(device->context(), port, 0, &entry, 0, sizeof(entry)) != 0) {
        continue;
      }
      found.gid = entry.gid;
      return found;
    }
    for (int index = 0; index < std::min(found.attributes.gid_tbl_len, 256); ++index) {
      ibv_gid_entry entry{};
      if (verbs_.query_gid_entry(device->context(), port, static_cast<uint32_t>(index), &entry, 0,
                                 sizeof(entry)) != 0) {
        continue;
      }
      const bool is_wanted = std::memcmp(entry.gid.raw, wanted.data(), wanted.size()) == 0;
      if (is_any ? !is_of_family(entry.gid, local) : !is_wanted) continue;
      found.gid_index = static_cast<uint8_t>(index);
      found.gid = entry.gid;
      if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return found;
      if (!best) best = found;  // Version 1 stays within one Ethernet.
    }
  }
  return best;
}

Status Devices::add_region(RegionKey key, std::span<std::byte> memory) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!is_registered_[i]) continue;
    if (Status status = devices_[i]->add_region(key, memory); !status.is_ok()) {
      for (const std::shared_ptr<Device>& device : devices_) device->remove_region(key);
      return status;
    }
  }
  regions_.emplace(key.value, memory);
  return Status::ok();
}

Status Devices::add_device_memory(RegionKey key, const DeviceMemory& memory,
                                  const std::byte* base) {
  KeptMemory kept{UniqueFd(::fcntl(memory.fd, F_DUPFD_CLOEXEC, 0)), memory, base};
  if (!kept.fd.is_open()) {
    return {Code::kResourceExhausted,
            std::string("a dma-buf cannot be kept: ") + std::strerror(errno)};
  }
  kept.memory.fd = kept.fd.get();
  Status failed;
  bool is_there = false;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!is_registered_[i]) continue;
    const Status status = devices_[i]->add_device_memory(key, kept.memory, base);
    is_there |= status.is_ok();
    if (!status.is_ok()) failed = status;
  }
  if (!is_there && !failed.is_ok()) return failed;
  device_memories_.emplace(key.value, std::move(kept));
  return Status::ok();
}

void Devices::remove_region(RegionKey key) {
  for (const std::shared_ptr<Device>& device : devices_) device->remove_region(key);
  regions_.erase(key.value);
  device_memories_.erase(key.value);
}

}  // namespace rueda::transport::rdma

#endif
