// The RDMA devices of this machine that a transport uses, and the memory that it has registered
// with them.
#pragma once

#include "daemon/transport/rdma/verbs.h"

#ifdef RUEDA_HAS_VERBS

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

#include "daemon/transport/transport.h"

namespace rueda::transport::rdma {

// The one who looks into a completion queue when the device says that something has come.
class CompletionHandler {
 public:
  virtual ~CompletionHandler() = default;
  virtual void on_completions() = 0;
};

// One opened device. It belongs to a loop, and lives as long as a transport or a queue pair needs
// it.
class Device : public std::enable_shared_from_this<Device> {
 public:
  static Result<std::shared_ptr<Device>> open(boost::asio::io_context& io, const Verbs& verbs,
                                              ibv_device* device);
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
  void remove_region(RegionKey key);
  // Returns the local key of a region that was added.
  uint32_t local_key(RegionKey key) const;
  // Registers other memory; the caller deregisters it. `access` has the meaning that it has for
  // ibv_reg_mr().
  Result<ibv_mr*> register_memory(std::span<std::byte> memory, int access) const;

 private:
  Device(boost::asio::io_context& io, const Verbs& verbs, std::string name)
      : verbs_(verbs), name_(std::move(name)), readable_(io) {}
  Status set_up(ibv_device* device);
  void wait();
  void take_events();

  const Verbs& verbs_;
  const std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* events_ = nullptr;
  ibv_device_attr attributes_{};
  // The descriptor of events_, which closes it.
  boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type> readable_;
  std::unordered_map<uint32_t, ibv_mr*> regions_;
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
  Devices(boost::asio::io_context& io, const Verbs& verbs) : io_(io), verbs_(verbs) {}

  // Returns ok, or why no device of this machine can be used.
  Status is_viable() const;
  // Finds the port whose network has this address of ours, which a TCP connection to the peer uses,
  // so that the system's routes choose the device. All regions are registered with it on return.
  // The error is kNotFound if no device has the address.
  Result<LocalPort> find(const boost::asio::ip::address& local);

  // Keeps the region, and registers it with all devices that are open.
  Status add_region(RegionKey key, std::span<std::byte> memory);
  void remove_region(RegionKey key);

 private:
  Status open_all();
  std::optional<LocalPort> find_port(const std::shared_ptr<Device>& device,
                                     const boost::asio::ip::address& local) const;

  boost::asio::io_context& io_;
  const Verbs& verbs_;
  bool is_open_ = false;
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<bool> is_registered_;  // By device: whether it has all regions.
  std::map<uint32_t, std::span<std::byte>> regions_;
};

}  // namespace rueda::transport::rdma

#endif
