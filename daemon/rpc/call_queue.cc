#include "daemon/rpc/call_queue.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include "daemon/base/mutex.h"
#include "daemon/base/no_exception.h"

namespace rueda::rpc {

CallQueue::CallQueue(grpc::ServerBuilder& builder)
    : queue_(builder.AddCompletionQueue()), thread_([this] { run(); }) {}

void CallQueue::run() {
  ::pthread_setname_np(::pthread_self(), "rueda-grpc");
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    const std::unique_ptr<Ended> ended(static_cast<Ended*>(tag));
    without_exception([&] { (*ended)(ok); },
                      [](const char* what) { spdlog::error("a call has failed: {}", what); });
  }
}

void CallQueue::begin() {
  const MutexLock lock(mutex_);
  ++calls_;
}

void CallQueue::end() {
  const MutexLock lock(mutex_);
  if (--calls_ == 0) changed_.notify_all();
}

void CallQueue::stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    while (calls_ != 0) changed_.wait(lock);
  }
  queue_->Shutdown();
  thread_.join();
}

}  // namespace rueda::rpc
