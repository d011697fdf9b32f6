// The one thread of a gRPC server: what gRPC has to tell comes here.
//
// gRPC's callback interface would need less code, but it keeps threads of its own, one for every
// two cores, and each wakes twice a second though nothing happens. This one sleeps until something
// does.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <grpcpp/grpcpp.h>

namespace rueda::service {

// What to do when an operation has ended; `ok` is that of grpc::CompletionQueue::Next().
using Ended = std::function<void(bool ok)>;

class CallQueue {
 public:
  // Before the builder's server is built. The server is shut down before this is stopped, and
  // destroyed before this is.
  explicit CallQueue(grpc::ServerBuilder& builder);
  ~CallQueue() { stop(); }

  // What gRPC is to be given as the tag of one operation. `ended` is called once, on the thread.
  static void* tag(Ended ended) { return new Ended(std::move(ended)); }
  grpc::ServerCompletionQueue* get() const { return queue_.get(); }

  // Thread-safe. A call starts operations between its begin() and its end() alone.
  void begin();
  void end();
  // Waits until the calls that have begun have ended, and ends the thread. Not to be called on it.
  void stop();

 private:
  void run();

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  std::thread thread_;
};

}  // namespace rueda::service
