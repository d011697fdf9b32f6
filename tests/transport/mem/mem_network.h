// The directory of an in-process network, and how one transport calls another.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace rueda::transport {

namespace mem {

class MemTransport;

// A transport, as other transports see it. They may hold the door for longer than the transport
// lives.
class Door {
 public:
  Door(boost::asio::io_context& io, MemTransport& owner) : io_(&io), owner_(&owner) {}

  // Returns null once the transport is destroyed. Call this on the transport's loop.
  MemTransport* owner() const { return owner_; }
  // The transport's destructor calls this, on the transport's loop.
  void close() {
    const std::lock_guard lock(mutex_);
    owner_ = nullptr;
    io_ = nullptr;
  }
  // Runs `make(io)` at once and posts the result to the transport's loop. Returns false, and does
  // neither, if the transport is gone. Any thread may call this.
  template <class Make>
  bool post(Make&& make) {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return false;
    boost::asio::post(*io_, make(*io_));
    return true;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* io_;
  MemTransport* owner_;
};

}  // namespace mem

class MemNetwork {
 public:
  // Returns false if a transport listens at this address already.
  bool add(const std::string& address, std::shared_ptr<mem::Door> door) {
    const std::lock_guard lock(mutex_);
    return doors_.emplace(address, std::move(door)).second;
  }
  void remove(const std::string& address) {
    const std::lock_guard lock(mutex_);
    doors_.erase(address);
  }
  std::shared_ptr<mem::Door> find(const std::string& address) {
    const std::lock_guard lock(mutex_);
    const auto found = doors_.find(address);
    return found == doors_.end() ? nullptr : found->second;
  }
  int next_port() {
    const std::lock_guard lock(mutex_);
    return ++last_port_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<mem::Door>> doors_;
  int last_port_ = 0;
};

}  // namespace rueda::transport
