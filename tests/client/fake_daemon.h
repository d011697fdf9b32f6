// Runs a daemon in a thread, which speaks client/abi/rueda_abi.h to one client at a time and does
// what a test tells it, right or wrong. It reduces for a world of one rank: output = input *
// prescale * postscale.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/src/start/config.h"
#include "daemon/base/fd.h"

namespace rueda::client {

class FakeDaemon {
 public:
  struct Options {
    uint32_t submission_capacity = 64;
    uint32_t completion_capacity = 64;
    uint16_t version = RUEDA_ABI_VERSION;
    int32_t attach_code = 0;
    std::string attach_text;
    bool starts = true;  // whether it sends STARTED
    bool seals_rings = true;
    bool answers = true;    // whether it answers requests after the attach
    bool completes = true;  // whether it completes submissions at once
    int32_t rank = 0;       // the client's rank, which is the root of a broadcast or is not
    int32_t world_size = 1;
  };
  struct Counts {
    int attaches = 0;
    int detaches = 0;  // connections that ended with a goodbye
    int lost = 0;      // connections that ended without a goodbye
    int interns = 0;
    int arenas_added = 0;
    int arenas_removed = 0;
    int submissions = 0;
  };

  FakeDaemon();
  explicit FakeDaemon(Options options);
  ~FakeDaemon();

  const std::string& socket_path() const { return path_; }
  // Returns what a client needs to attach.
  Config config() const;
  // Sets RUEDA_* and RANK, LOCAL_RANK for rueda_init.
  void set_environment() const;

  Counts counts() const;
  // Returns the records that have come so far.
  std::vector<rueda_abi_submission> submissions() const;
  // Blocks until the condition on the counts holds. Returns false after 20 s.
  template <class Condition>
  bool wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return condition(counts_); });
  }

  // Says whether submissions are completed at once from now on, those that were held back first, or
  // are held back.
  void set_completes(bool completes);
  // Reduces and completes a submission that was held back.
  void complete(uint64_t ticket, int32_t code = 0, const std::string& text = "");
  // Pushes a completion as it is, for any ticket.
  void push_raw(const rueda_abi_completion& record, const std::string& text, bool rings = true);
  void fail_job(int32_t code, const std::string& text);
  // Writes an impossible tail into the completion ring.
  void damage_completion_ring();
  // Writes an impossible head into the submission ring, and tells nobody.
  void damage_submission_ring();
  // Returns whether the client has said that it sleeps until a completion comes.
  bool is_client_asleep();
  // Closes the connection without a word, as a death does.
  void drop();
  void send_raw(const void* bytes, size_t size);

 private:
  struct Mapping {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  void run();
  void serve_connection();
  bool on_message(const rueda_abi_header& header, const std::string& body, UniqueFd& descriptor);
  void attach_locked(const rueda_abi_attach& attach);
  void drain_submissions_locked();
  void finish_locked(const rueda_abi_submission& record, int32_t code, const std::string& text);
  void push_locked(const rueda_abi_completion& record, const std::string& text, bool rings);
  void reply_locked(int32_t code, uint32_t value, const std::string& text);
  void send_locked(uint16_t type, const void* body, size_t bytes, const std::vector<int>& fds = {});
  void close_locked();

  Options options_;
  std::string path_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Counts counts_;
  bool stops_ = false;
  bool is_detached_ = false;
  UniqueFd listener_, wakeup_, connection_, daemon_doorbell_, client_doorbell_;
  Mapping submission_ring_, completion_ring_;
  uint64_t submissions_taken_ = 0;
  std::map<uint32_t, Mapping> arenas_;
  std::vector<rueda_abi_intern> tensors_;
  std::vector<rueda_abi_submission> seen_;
  std::map<uint64_t, rueda_abi_submission> held_;
  std::thread thread_;
};

}  // namespace rueda::client
