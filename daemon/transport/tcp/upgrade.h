// The interface by which a connection that has said its hello becomes something faster than TCP.
// The connecting side offers it in the hello, and the accepting side takes it up in the reply; then
// both ends' upgraders talk to each other over the connection, and make a channel of it: one of
// their own, or one over TCP.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "daemon/base/status.h"
#include "daemon/transport/region_table.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

// One connection's upgrade that is under way. Its owner withdraws it, or waits for its end.
class Upgrade {
 public:
  virtual ~Upgrade() = default;
  // Closes the connection; no handler is called any more.
  virtual void cancel() = 0;
};

// Makes more of connections. An upgrader belongs to its transport's loop, and outlives the
// transport while upgrades are under way. The handlers get the channel, or an error if the
// connection broke or the peer cannot do what this end insists on; they are called once, and never
// from inside the call that starts the upgrade.
class Upgrader {
 public:
  virtual ~Upgrader() = default;

  // Returns the transport's name with this upgrader, such as "rdma".
  virtual const char* name() const = 0;
  // Returns ok, or why no connection can be upgraded on this machine.
  virtual Status is_viable() const = 0;
  // Returns true if channels over TCP alone are to fail.
  virtual bool is_required() const = 0;

  // These tell of the transport's regions, as they come and go.
  virtual Status add_region(RegionKey key, std::span<std::byte> memory) = 0;
  // Adds memory of a device, at an address that the host has nothing at. Returns kUnavailable if no
  // channel could be made that sends from it.
  virtual Status add_device_memory(RegionKey key, const DeviceMemory& memory,
                                   const std::byte* base) = 0;
  virtual void remove_region(RegionKey key) = 0;

  // `options` is copied. `peer` names the other end in errors.
  virtual std::shared_ptr<Upgrade> upgrade_sender(Socket socket, const ConnectOptions& options,
                                                  std::shared_ptr<const RegionTable> regions,
                                                  std::string peer, ConnectHandler done) = 0;
  virtual std::shared_ptr<Upgrade> upgrade_receiver(Socket socket, const AcceptOptions& options,
                                                    std::string peer, AcceptHandler done) = 0;
};

}  // namespace rueda::transport::tcp
