// Passes the output of ranks and daemons, in whole lines, to this process's stdout and stderr.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/process/line_splitter.h"
#include "agent/process/process.h"
#include "daemon/base/mutex.h"

namespace rueda::agent {

// Writes to a file descriptor from a thread of its own, so that a terminal that is held up, or a
// slow reader of a pipe, stops only the ranks that write. Thread-safe.
class OutputSink {
 public:
  // Beyond this size is_full() is true, and the ranks' pipes are not read until half of it has been
  // written.
  static constexpr size_t kMaxQueuedBytes = 4u << 20;

  // The caller keeps `fd`. `on_room` is called on the sink's thread when a full sink has room
  // again.
  OutputSink(int fd, std::function<void()> on_room);
  // Drops text that is still queued.
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  // Queues text; never blocks. Once the reader is gone all text is dropped. While the disk is full,
  // writes are tried again, text that does not fit into the queue is dropped, and a line says how
  // much when there is room.
  void write(std::string text);
  // Waits for queued text as long as the reader takes some of it within `patience`. Returns a
  // sentence about text that is then lost, or "". It must be called at most once, as the last call.
  std::string finish(std::chrono::seconds patience);
  bool is_full() const;

 private:
  // State that is shared with the thread, which may be stuck in a write when the sink is destroyed.
  struct State {
    Mutex mutex;
    Condition changed;
    std::string queued RUEDA_GUARDED_BY(mutex);
    size_t writing_bytes RUEDA_GUARDED_BY(mutex) = 0;
    size_t written_bytes RUEDA_GUARDED_BY(mutex) = 0;
    bool was_full RUEDA_GUARDED_BY(mutex) = false;
    bool is_broken RUEDA_GUARDED_BY(mutex) = false;
    int passing_error RUEDA_GUARDED_BY(mutex) =
        0;  // errno of the last write, if the error may pass; else 0
    size_t lost_bytes RUEDA_GUARDED_BY(mutex) = 0;  // dropped bytes that have not been reported
    bool is_stopping RUEDA_GUARDED_BY(mutex) = false;
    bool is_done RUEDA_GUARDED_BY(mutex) = false;
    std::function<void()> on_room;
  };
  static void run(const std::shared_ptr<State>& state, int fd);
  static void give_room(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

// Reads one pipe on the loop, and passes its lines on with a prefix.
class OutputPipe {
 public:
  // `on_end` is called once, when the last writer has closed the pipe.
  OutputPipe(boost::asio::io_context& loop, UniqueFd read_end, std::string prefix, OutputSink& sink,
             std::function<void()> on_end);

  void start() { wait(); }
  // Reads on after the sink had no room.
  void resume();
  // Takes the bytes that are in the pipe now.
  void catch_up();
  // Takes the bytes in the pipe, and an unfinished last line, and closes the pipe.
  void finish();
  bool is_ended() const { return is_ended_; }

 private:
  void wait();
  void on_readable();
  // Reads once. Returns false when there is nothing more for now.
  bool read_some();
  void end();

  boost::asio::posix::stream_descriptor pipe_;
  LineSplitter splitter_;
  OutputSink& sink_;
  std::function<void()> on_end_;
  bool is_waiting_for_room_ = false;
  bool is_ended_ = false;
};

}  // namespace rueda::agent
