#include "daemon/engine/data/data_loops.h"

#include <atomic>
#include <utility>

#include "daemon/base/check.h"

namespace rueda::engine {
namespace {

// Returns a function that is to be called so many times; the last call calls the handler.
std::function<void()> after(size_t times, std::function<void()> handler) {
  if (!handler) return {};
  return [left = std::make_shared<std::atomic<size_t>>(times), handler = std::move(handler)] {
    if (left->fetch_sub(1) == 1) handler();
  };
}

}  // namespace

DataLoops::DataLoops(std::vector<std::unique_ptr<DataLoop>> loops) : loops_(std::move(loops)) {
  RUEDA_CHECK(!loops_.empty());
}

Result<std::vector<std::string>> DataLoops::start(
    const std::vector<std::string>& listen_addresses) {
  RUEDA_CHECK(listen_addresses.size() == loops_.size());
  std::vector<std::string> bound;
  for (size_t i = 0; i < loops_.size(); ++i) {
    Result<std::string> address = loops_[i]->start(listen_addresses[i]);
    if (!address.is_ok()) {
      stop();
      return address.status();
    }
    bound.push_back(std::move(address).value());
  }
  return bound;
}

void DataLoops::stop() {
  for (const auto& loop : loops_) loop->stop();
}

void DataLoops::cancel(const JobId& job, Epoch epoch, const core::Cancel& cancelled,
                       std::function<void()> done) {
  const std::function<void()> cancelled_there = after(loops_.size(), std::move(done));
  for (const auto& loop : loops_) loop->cancel(job, epoch, cancelled, cancelled_there);
}

void DataLoops::end_set(const JobId& job, Epoch epoch, uint32_t process_set) {
  for (const auto& loop : loops_) loop->end_set(job, epoch, process_set);
}

void DataLoops::end_epoch(const JobId& job, Epoch epoch, std::function<void()> done) {
  const std::function<void()> ended = after(loops_.size(), std::move(done));
  for (const auto& loop : loops_) loop->end_epoch(job, epoch, ended);
}

void DataLoops::when_quiet(const JobId& job, Epoch epoch, std::function<void()> handler) {
  const std::function<void()> quiet = after(loops_.size(), std::move(handler));
  for (const auto& loop : loops_) loop->when_quiet(job, epoch, quiet);
}

void DataLoops::refresh_metrics() {
  for (const auto& loop : loops_) loop->refresh_metrics();
}

std::string join_addresses(const std::vector<std::string>& addresses) {
  std::string text;
  for (const std::string& address : addresses) text += (text.empty() ? "" : ",") + address;
  return text;
}

std::vector<std::string> split_addresses(const std::string& text) {
  std::vector<std::string> addresses;
  for (size_t begin = 0;;) {
    const size_t end = text.find(',', begin);
    addresses.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return addresses;
    begin = end + 1;
  }
}

}  // namespace rueda::engine
