// Plants the faults of ruedad-faults, a ruedad that only tests have, as RUEDA_TEST_FAULT says:
// `reduce`, `clock:MS`, `dies:NODE:STEP:N:FILE` (the daemon of a node kills itself when an elastic
// job comes to the step for the Nth time, and leaves the file; if it is there, it does not), or
// `reads-gpu`, which is no fault: network cards read a GPU's memory.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "daemon/faults.h"
#include "daemon/transport/transport.h"

namespace rueda {
namespace {

using transport::AcceptHandler;
using transport::AcceptOptions;
using transport::ChannelId;
using transport::ConnectHandler;
using transport::ConnectOptions;
using transport::DeviceMemory;
using transport::DeviceRegion;
using transport::RegionKey;
using transport::Transport;

// Sends from the memory of a fake GPU, which is a file, as a card does that reads the memory of a
// real one. All else is the inner transport's.
class ReadsGpu final : public Transport {
 public:
  explicit ReadsGpu(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  ~ReadsGpu() override {
    while (!mapped_.empty()) deregister_region(RegionKey{mapped_.begin()->first});
  }

  const char* name() const override { return inner_->name(); }
  Status is_viable() const override { return inner_->is_viable(); }
  Result<std::string> listen(const std::string& address) override {
    return inner_->listen(address);
  }
  void expect(AcceptOptions options, AcceptHandler handler) override {
    inner_->expect(std::move(options), std::move(handler));
  }
  void cancel_expect(const ChannelId& id) override { inner_->cancel_expect(id); }
  void connect(ConnectOptions options, ConnectHandler handler) override {
    inner_->connect(std::move(options), std::move(handler));
  }
  void cancel_connect(const ChannelId& id) override { inner_->cancel_connect(id); }
  Result<RegionKey> register_region(std::span<std::byte> memory) override {
    return inner_->register_region(memory);
  }
  Result<DeviceRegion> register_device_memory(const DeviceMemory& memory) override {
    void* const base = ::mmap(nullptr, memory.bytes, PROT_READ, MAP_SHARED, memory.fd,
                              static_cast<off_t>(memory.offset));
    if (base == MAP_FAILED) return Status(Code::kUnavailable, "the memory cannot be mapped");
    const std::span<std::byte> mapped(static_cast<std::byte*>(base), memory.bytes);
    const Result<RegionKey> key = inner_->register_region(mapped);
    if (!key.is_ok()) return key.status();
    mapped_.emplace(key.value().value, mapped);
    return DeviceRegion{key.value(), mapped.data()};
  }
  void deregister_region(RegionKey key) override {
    inner_->deregister_region(key);
    if (const auto mapped = mapped_.extract(key.value)) {
      ::munmap(mapped.mapped().data(), mapped.mapped().size());
    }
  }
  uint64_t rejected() const override { return inner_->rejected(); }
  void stop() override { inner_->stop(); }

 private:
  const std::unique_ptr<Transport> inner_;
  std::map<uint32_t, std::span<std::byte>> mapped_;  // A GPU's memory, by region.
};

// Returns the node id of this daemon's command line.
std::string own_node_id() {
  std::ifstream file("/proc/self/cmdline");
  bool is_next = false;
  for (std::string word; std::getline(file, word, '\0');) {
    if (std::exchange(is_next, word == "--node-id")) return word;
  }
  return "";
}

// Makes of "NODE:STEP:N:FILE" what dies there.
std::function<void(const char*)> death_of(const std::string& text) {
  std::istringstream words(text);
  std::string node;
  std::string step;
  std::string number;
  std::string file;
  std::getline(words, node, ':');
  std::getline(words, step, ':');
  std::getline(words, number, ':');
  std::getline(words, file);
  if (node != own_node_id()) return nullptr;
  return [step, file, left = std::stoi(number)](const char* at) mutable {
    if (step != at || --left != 0) return;
    if (::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) < 0) return;
    ::raise(SIGKILL);
  };
}

}  // namespace

Faults planted_faults() {
  const char* const value = std::getenv("RUEDA_TEST_FAULT");
  const std::string fault = value != nullptr ? value : "";
  Faults faults;
  if (fault == "reduce") {
    faults.corrupts_reduction = true;
  } else if (fault.starts_with("clock:")) {
    faults.clock_skew_ns = std::stoll(fault.substr(6)) * 1'000'000;
  } else if (fault.starts_with("dies:")) {
    faults.at_step = death_of(fault.substr(5));
  } else if (fault == "reads-gpu") {
    faults.wrap_transport = [](std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
      return std::make_unique<ReadsGpu>(std::move(inner));
    };
  } else {
    std::fprintf(stderr,
                 "ruedad-faults: RUEDA_TEST_FAULT is none of reduce, clock:MS, "
                 "dies:NODE:STEP:N:FILE and reads-gpu\n");
    std::exit(2);
  }
  return faults;
}

}  // namespace rueda
