// A data loop carries out operations: it owns a transport and the data jobs that live on it, and
// has a thread of its own, or shares another loop's. Public methods may be called from any thread,
// because they post. Handlers are called on the loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "daemon/engine/channels/link_measurement.h"
#include "daemon/engine/data/data_job.h"
#include "daemon/engine/data/transfer_job.h"
#include "daemon/engine/loops/busy_poll_loop.h"
#include "daemon/observe/metrics.h"
#include "daemon/transport/transport.h"

namespace rueda::engine {

class DataLoop {
 public:
  // A factory makes the transport that the loop is to use.
  using TransportFactory =
      std::function<std::unique_ptr<transport::Transport>(boost::asio::io_context&)>;

  // `pass_threads` is the number of threads that do a pass over memory, the loop's own among them.
  // `host` is the loop whose thread this one shares, or null; it outlives the object, and has ended
  // when the object is stopped.
  DataLoop(observe::Metrics& metrics, const TransportFactory& make_transport, int pass_threads = 1,
           BusyPollLoop* host = nullptr);
  ~DataLoop();  // The destructor stops.

  // Binds the data port and starts the thread, if the loop has one. Returns the address bound. It
  // is called once.
  Result<std::string> start(const std::string& listen_address);
  // Ends the thread and drops what is under way. Nothing is called back after stop() returns.
  void stop();

  // Opens the channels of a part of the epoch's process set. The set of all ranks, 0, is opened
  // first.
  void begin_epoch(DataJobOptions options);
  void run(const JobId& job, Epoch epoch, uint32_t part, std::unique_ptr<Operation> operation);
  // Makes ready for the epoch's transfers between ranks, whose nodes are those of the layout.
  void begin_transfers(DataJobOptions options);
  void run(const JobId& job, Epoch epoch, Transfer transfer);
  // Opens the epoch's channels for transfers to and from a node; has no effect if they are open.
  void open_transfers(const JobId& job, Epoch epoch, NodeIndex peer);
  // Sends a message about a transfer.
  void send(const JobId& job, Epoch epoch, TransferJob::Outgoing message);
  // Another round of an operation's input is in host memory (DataJob::rounds_came), for all parts
  // of the process set.
  void rounds_came(const JobId& job, Epoch epoch, uint32_t process_set, Seq seq);
  // L7: drops the lockable operations from `cancelled.first` on; their numbers come again, in its
  // generation. `done`, which may be empty, is called once none of them touches memory any more.
  void cancel(const JobId& job, Epoch epoch, const core::Cancel& cancelled,
              std::function<void()> done);
  // The process set is gone, with nothing under way on this node. Its channels are closed when the
  // neighbours have what they need of it.
  void end_set(const JobId& job, Epoch epoch, uint32_t process_set);
  // Drops the epoch's operations and channels, of all process sets. `done`, which may be empty, is
  // called once no byte of any client's memory will be touched for the epoch any more.
  void end_epoch(const JobId& job, Epoch epoch, std::function<void()> done);
  // Calls back when the neighbours have taken all that was sent to them, when a deadline has
  // passed, or when the epoch is gone.
  void when_quiet(const JobId& job, Epoch epoch, std::function<void()> handler);
  // These are the two ends of a measurement; a loop has one of each at a time. `ready` hears that
  // the source may connect from now on, or why not. A sink of the same probe, or one that nobody
  // has come to, gives way to a new sink.
  void receive_measurement(const LinkMeasurement& measurement, std::function<void(Status)> ready);
  void send_measurement(const LinkMeasurement& measurement, const std::string& address,
                        LinkSource::Done done);
  // Does the work on the loop, in its turn.
  void post(std::function<void()> work) { in_loop(std::move(work)); }
  // Brings rueda_rejected_connections_total and the traffic counters up to date. It waits for the
  // loop, for 200 ms at most, so it must not be called on a loop.
  void refresh_metrics();

 private:
  // A key names a data job; the two numbers are the process set and the part.
  using Key = std::tuple<JobId, Epoch, uint32_t, uint32_t>;

  void in_loop(std::function<void()> work);
  // Does the work in the loop with the data job, if the job is there. A job whose work throws has
  // failed.
  template <class Work>
  void in_loop(const Key& key, Work work);
  // Does the work in the loop with the epoch's transfers, in the same way.
  template <class Work>
  void in_transfers(const JobId& job, Epoch epoch, Work work);
  // A handler of the loop has thrown, and nobody knows for which job: all of them that have
  // something under way fail, because one that waited for what is lost would wait for ever.
  void on_exception(const char* what);
  // Visits all parts of the process sets from first_set to last_set.
  template <class Visit>
  void for_each(const JobId& job, Epoch epoch, uint32_t first_set, uint32_t last_set, Visit visit);
  void count_rejected();

  observe::Metrics& metrics_;
  // Only a loop with a thread of its own has this.
  struct Own {
    boost::asio::io_context io{1};
    BusyPollLoop awake{io};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work =
        boost::asio::make_work_guard(io);
    std::thread thread;
  };

  std::unique_ptr<Own> own_;
  BusyPollLoop& awake_;
  boost::asio::io_context& io_ = awake_.io();
  std::unique_ptr<transport::Transport> transport_;
  PassThreads pass_threads_;
  Turns turns_{io_, kTurnBytes, kLongestTurn};
  std::map<Key, std::unique_ptr<DataJob>> jobs_;                               // in loop
  std::map<std::pair<JobId, Epoch>, std::unique_ptr<TransferJob>> transfers_;  // in loop
  std::unique_ptr<LinkSource> source_;                                         // in loop
  std::unique_ptr<LinkSink> sink_;                                             // in loop
  uint64_t counted_rejected_ = 0;
  uint64_t counted_forged_ = 0;
};

}  // namespace rueda::engine
