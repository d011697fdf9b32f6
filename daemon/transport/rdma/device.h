// The RDMA devices of this machine that a transport uses, and the memory that it has registered
// with them.
#pragma once

#include "daemon/transport/rdma/verbs.h"

#ifdef RUEDA_HAS_VERBS

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>

#include "daemon/base/fd.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::rdma {

// A completion queue, as its device sees it.
class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // The event has come that the queue was armed for. It is not armed any more.
  virtual void on_event() = 0;
  // The device polls: something may have come.
  virtual void look() = 0;
};

// Which devices a transport uses, and how it learns of completions.
struct DeviceOptions {
  // The names of the devices, which the channels' streams use in turn; the peer has as many. Empty:
  // the device on whose network the peer is reached.
  std::vector<std::string> rails;
  // For so long after the last work the queues are looked into in each turn of the loop, which then
  // never sleeps; afterwards the device is asked for events. 0: at once.
  std::chrono::microseconds poll{0};
};

// One opened device. It belongs to a loop, and lives as long as a transport or a queue pair needs
// it.
class Device : public std::enable_shared_from_this<Device> {
 public:
  static Result<std::shared_ptr<Device>> open(boost::asio::io_context& io, const Verbs& verbs,
                                              ibv_device* device, std::chrono::microseconds poll);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Verbs& verbs() const { return verbs_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  ibv_comp_channel* events() const { return events_; }
  const ibv_device_attr& attributes() const { return attributes_; }
  const std::string& name() const { return name_; }

  // Registers memory from which this node sends. The error is kResourceExhausted if the system
  // refuses, most likely because of the limit of locked memory.
  Status add_region(RegionKey key, std::span<std::byte> memory);
  // Registers memory of another device, which this one then reads by itself, at an address that
  // stands for it. Returns kUnavailable, with the reason, if the device or the library cannot.
  Status add_device_memory(RegionKey key, const DeviceMemory& memory, const std::byte* base);
  void remove_region(RegionKey key);
  bool has_region(RegionKey key) const { return regions_.contains(key.value); }
  // Returns the local key of a region that was added.
  uint32_t local_key(RegionKey key) const;
  // Registers other memory; the caller deregisters it. `access` has the meaning that it has for
  // ibv_reg_mr().
  Result<ibv_mr*> register_memory(std::span<std::byte> memory, int access) const;

  // Keeps a queue, which is looked into while the device polls, until it is removed.
  void add_queue(CompletionQueue& queue) { queues_.push_back(&queue); }
  void remove_queue(CompletionQueue& queue);
  // Something was posted, or has come: the device polls from now on, if it ever does.
  void note_work();
  // While it is true, queues need no events.
  bool is_polling() const { return is_polling_; }

 private:
  Device(boost::asio::io_context& io, const Verbs& verbs, std::string name,
         std::chrono::microseconds poll)
      : io_(io), verbs_(verbs), name_(std::move(name)), poll_(poll), readable_(io) {}
  Status set_up(ibv_device* device);
  void wait();
  void take_events();
  void look_again();
  void look_into_all();

  boost::asio::io_context& io_;
  const Verbs& verbs_;
  const std::string name_;
  const std::chrono::microseconds poll_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* events_ = nullptr;
  ibv_device_attr attributes_{};
  // The descriptor of events_, which closes it.
  boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type> readable_;
  std::unordered_map<uint32_t, ibv_mr*> regions_;
  // A queue that went while all are looked into leaves null.
  std::vector<CompletionQueue*> queues_;
  bool is_looking_ = false;
  bool is_polling_ = false;
  std::chrono::steady_clock::time_point poll_until_;
};

// A port of a device with the address that it has on the network.
struct LocalPort {
  std::shared_ptr<Device> device;
  uint8_t port = 0;
  uint8_t gid_index = 0;
  ibv_gid gid{};
  ibv_port_attr attributes{};
};

// All devices of a transport. They are opened when they are needed first, and belong to a loop.
class Devices {
 public:
  Devices(boost::asio::io_context& io, const Verbs& verbs, DeviceOptions options)
      : io_(io), verbs_(verbs), options_(std::move(options)) {}

  // Returns ok, or why no device of this machine can be used, or which one is missing.
  Status is_viable() const;
  // Finds the port for a channel's stream; both ends have the same number for it. Without rails it
  // is the port whose network has this address of ours, which a TCP connection to the peer uses, so
  // that the system's routes choose the device. With rails it is a port of the rail whose turn it
  // is, with an address of the same family. All regions are registered with the device on return.
  // The error is kNotFound if there is no such port.
  Result<LocalPort> find(const boost::asio::ip::address& local, uint32_t number);
  // Returns how many rails there are; 0 means that the address chooses the device.
  size_t rails() const { return options_.rails.size(); }

  // Keeps the region, and registers it with all devices that are open.
  Status add_region(RegionKey key, std::span<std::byte> memory);
  // Keeps memory of another device, and registers it with all RDMA devices that are open. One that
  // cannot is left out, and its channels do not send from there. Returns why, if none of them can.
  Status add_device_memory(RegionKey key, const DeviceMemory& memory, const std::byte* base);
  void remove_region(RegionKey key);

 private:
  Status open_all();
  struct Found {
    size_t device = 0;  // The index in devices_.
    LocalPort port;
  };
  Result<Found> find_by_address(const boost::asio::ip::address& local) const;
  Result<Found> find_rail(const boost::asio::ip::address& local, const std::string& name) const;
  // Finds an active port of the device with the address, or with any of its family.
  std::optional<LocalPort> find_port(const std::shared_ptr<Device>& device,
                                     const boost::asio::ip::address& local, bool is_any) const;
  Status register_all(size_t device);

  boost::asio::io_context& io_;
  const Verbs& verbs_;
  const DeviceOptions options_;
  bool is_open_ = false;
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<bool> is_registered_;  // By device: whether it has all regions.
  std::map<uint32_t, std::span<std::byte>> regions_;
  struct KeptMemory {
    UniqueFd fd;
    DeviceMemory memory;  // Its descriptor is that above.
    const std::byte* base = nullptr;
  };
  std::map<uint32_t, KeptMemory> device_memories_;
};

}  // namespace rueda::transport::rdma

#endif
