#include "daemon/engine/data/data_loop.h"

#include <chrono>
#include <future>
#include <utility>

#include <boost/asio/post.hpp>
#include <pthread.h>

#include "daemon/base/no_exception.h"
#include "daemon/base/soon.h"

namespace rueda::engine {
namespace {

Status cannot_go_on(const char* what) {
  return {Code::kResourceExhausted,
          std::string("its data loop could not go on (") + what + "); give the daemon more memory"};
}

}  // namespace

DataLoop::DataLoop(observe::Metrics& metrics, const TransportFactory& make_transport,
                   int pass_threads, BusyPollLoop* host)
    : metrics_(metrics),
      own_(host == nullptr ? std::make_unique<Own>() : nullptr),
      awake_(host == nullptr ? own_->awake : *host),
      transport_(make_transport(io_)),
      pass_threads_(pass_threads) {
  awake_.on_exception([this](const char* what) { on_exception(what); });
  if (!own_) return;  // The other loop is watched already.
  awake_.on_slow([this](const SlowHandler& slow) {
    metrics_.daemon().data_slow_handlers.Increment();
    report_slow("data", slow);
  });
}

DataLoop::~DataLoop() { stop(); }

Result<std::string> DataLoop::start(const std::string& listen_address) {
  if (Status viable = transport_->is_viable(); !viable.is_ok()) return viable;
  Result<std::string> bound = transport_->listen(listen_address);
  if (!bound.is_ok()) return bound;
  if (own_) {
    own_->thread = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "rueda-data");
      awake_.run();
    });
  }
  return bound;
}

void DataLoop::stop() {
  if (own_ && own_->thread.joinable()) {
    boost::asio::post(io_, [this] { io_.stop(); });
    own_->thread.join();
  }
  jobs_.clear();
  transfers_.clear();
  source_.reset();
  sink_.reset();
  transport_->stop();
}

void DataLoop::in_loop(std::function<void()> work) { Soon::run(io_, std::move(work)); }

template <class Work>
void DataLoop::in_loop(const Key& key, Work work) {
  in_loop([this, key, work = std::move(work)] {
    const auto found = jobs_.find(key);
    if (found == jobs_.end()) return;
    DataJob& job = *found->second;
    HandlerWatch::note(job.cause());
    without_exception([&] { work(job); }, [&](const char* what) { job.fail(cannot_go_on(what)); });
  });
}

void DataLoop::on_exception(const char* what) {
  report_exception(what);
  for (const auto& [key, job] : jobs_) {
    if (job->has_work()) job->fail(cannot_go_on(what));
  }
  for (const auto& [key, transfers] : transfers_) {
    if (transfers->has_work()) transfers->fail(cannot_go_on(what));
  }
}

template <class Visit>
void DataLoop::for_each(const JobId& job, Epoch epoch, uint32_t first_set, uint32_t last_set,
                        Visit visit) {
  const auto end = jobs_.upper_bound(Key{job, epoch, last_set, UINT32_MAX});
  for (auto it = jobs_.lower_bound(Key{job, epoch, first_set, 0}); it != end; ++it) {
    visit(it->first, *it->second);
  }
}

void DataLoop::begin_epoch(DataJobOptions options) {
  in_loop([this, options = std::move(options)]() mutable {
    count_rejected();
    const Key key{options.job, options.epoch, options.process_set, options.part};
    options.pass_threads = &pass_threads_;
    options.turns = &turns_;
    options.events.on_small = [this] { awake_.stay_awake(); };
    const auto tell_lost = [self = options.self, tell = options.events.on_channel_lost](
                               const char* what) { tell(self, cannot_go_on(what), true); };
    without_exception(
        [&] {
          auto job = std::make_unique<DataJob>(io_, *transport_, metrics_, std::move(options));
          DataJob* started = job.get();
          const bool is_new = jobs_.emplace(key, std::move(job)).second;
          RUEDA_CHECK(is_new);
          started->start();
        },
        tell_lost);
  });
}

void DataLoop::run(const JobId& job, Epoch epoch, uint32_t part,
                   std::unique_ptr<Operation> operation) {
  const Key key{job, epoch, operation->process_set, part};
  // std::function wants to be copied, and the operation is handed over once.
  auto shared = std::make_shared<std::unique_ptr<Operation>>(std::move(operation));
  in_loop(key, [shared](DataJob& part_of_job) { part_of_job.run(std::move(*shared)); });
}

void DataLoop::begin_transfers(DataJobOptions options) {
  in_loop([this, options = std::move(options)]() mutable {
    options.pass_threads = &pass_threads_;
    options.turns = &turns_;
    options.events.on_small = [this] { awake_.stay_awake(); };
    const std::pair key(options.job, options.epoch);
    auto made = std::make_unique<TransferJob>(io_, *transport_, metrics_, std::move(options));
    const bool is_new = transfers_.emplace(key, std::move(made)).second;
    RUEDA_CHECK(is_new);
  });
}

template <class Work>
void DataLoop::in_transfers(const JobId& job, Epoch epoch, Work work) {
  in_loop([this, key = std::pair(job, epoch), work = std::move(work)] {
    const auto found = transfers_.find(key);
    if (found == transfers_.end()) return;
    TransferJob& transfers = *found->second;
    HandlerWatch::note(transfers.cause());
    without_exception([&] { work(transfers); },
                      [&](const char* what) { transfers.fail(cannot_go_on(what)); });
  });
}

void DataLoop::run(const JobId& job, Epoch epoch, Transfer transfer) {
  in_transfers(job, epoch, [transfer = std::move(transfer)](TransferJob& transfers) {
    transfers.run(transfer);
  });
}

void DataLoop::open_transfers(const JobId& job, Epoch epoch, NodeIndex peer) {
  in_transfers(job, epoch, [peer](TransferJob& transfers) { transfers.open(peer); });
}

void DataLoop::send(const JobId& job, Epoch epoch, TransferJob::Outgoing message) {
  in_transfers(job, epoch,
               [message = std::move(message)](TransferJob& transfers) { transfers.send(message); });
}

void DataLoop::rounds_came(const JobId& job, Epoch epoch, uint32_t process_set, Seq seq) {
  in_loop([this, job, epoch, process_set, seq] {
    for_each(job, epoch, process_set, process_set,
             [seq](const Key&, DataJob& part) { part.rounds_came(seq); });
  });
}

void DataLoop::cancel(const JobId& job, Epoch epoch, const core::Cancel& cancelled,
                      std::function<void()> done) {
  in_loop([this, job, epoch, cancelled, done = std::move(done)] {
    for_each(job, epoch, cancelled.process_set, cancelled.process_set,
             [&](const Key&, DataJob& part) { part.cancel(cancelled); });
    if (done) done();
  });
}

void DataLoop::end_set(const JobId& job, Epoch epoch, uint32_t process_set) {
  in_loop([this, job, epoch, process_set] {
    for_each(job, epoch, process_set, process_set, [&](const Key& key, DataJob& part) {
      // The job goes in a fresh turn, because the job itself calls back.
      part.when_quiet([this, key] { in_loop([this, key] { jobs_.erase(key); }); });
    });
  });
}

void DataLoop::end_epoch(const JobId& job, Epoch epoch, std::function<void()> done) {
  in_loop([this, job, epoch, done = std::move(done)] {
    jobs_.erase(jobs_.lower_bound(Key{job, epoch, 0, 0}),
                jobs_.upper_bound(Key{job, epoch, UINT32_MAX, UINT32_MAX}));
    transfers_.erase({job, epoch});
    count_rejected();
    if (done) done();
  });
}

void DataLoop::when_quiet(const JobId& job, Epoch epoch, std::function<void()> handler) {
  in_loop([this, job, epoch, handler = std::move(handler)] {
    // The epoch's data jobs share this; the handler is called when the last of them lets go of it.
    const std::shared_ptr<void> last(nullptr, [handler](void*) { handler(); });
    for_each(job, epoch, 0, UINT32_MAX,
             [&](const Key&, DataJob& part) { part.when_quiet([last] {}); });
    const auto transfers = transfers_.find({job, epoch});
    if (transfers != transfers_.end()) transfers->second->when_quiet([last] {});
  });
}

void DataLoop::receive_measurement(const LinkMeasurement& measurement,
                                   std::function<void(Status)> ready) {
  in_loop([this, measurement, ready = std::move(ready)] {
    if (sink_ && sink_->is_connected() && sink_->probe() != measurement.probe) {
      return ready(Status(Code::kUnavailable,
                          "takes part in another measurement; try again in some seconds"));
    }
    sink_.reset();
    sink_ = std::make_unique<LinkSink>(io_, *transport_, measurement, [this] { sink_.reset(); });
    ready(Status::ok());
  });
}

void DataLoop::send_measurement(const LinkMeasurement& measurement, const std::string& address,
                                LinkSource::Done done) {
  in_loop([this, measurement, address, done = std::move(done)] {
    if (source_)
      return done(Status(Code::kUnavailable,
                         "takes part in another measurement; try again in some seconds"));
    source_ = std::make_unique<LinkSource>(io_, *transport_, measurement, address,
                                           [this, done](Result<double> bytes_per_second) {
                                             source_.reset();
                                             count_rejected();
                                             done(std::move(bytes_per_second));
                                           });
  });
}

void DataLoop::refresh_metrics() {
  auto done = std::make_shared<std::promise<void>>();
  in_loop([this, done] {
    count_rejected();
    for (const auto& [key, job] : jobs_) job->count_traffic();
    for (const auto& [key, transfers] : transfers_) transfers->count_traffic();
    done->set_value();
  });
  done->get_future().wait_for(std::chrono::milliseconds(200));
}

void DataLoop::count_rejected() {
  const uint64_t now = transport_->rejected();
  metrics_.daemon().rejected_connections.Increment(
      static_cast<double>(now - std::exchange(counted_rejected_, now)));
  const uint64_t forged = transport_->forged();
  metrics_.daemon().forged_frames.Increment(
      static_cast<double>(forged - std::exchange(counted_forged_, forged)));
}

}  // namespace rueda::engine
