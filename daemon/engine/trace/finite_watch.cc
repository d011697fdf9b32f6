#include "daemon/engine/trace/finite_watch.h"

#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/limits.h"

namespace rueda::engine {
namespace {

// An operation ends on all nodes nearly at once; what they find arrives within this time.
constexpr auto kCollect = std::chrono::milliseconds(100);
// The number of ever lower values that are sent up between two that are told.
constexpr int kMaxSentUp = 16;

}  // namespace

FiniteWatch::FiniteWatch(boost::asio::io_context& loop, observe::JobMetrics& metrics,
                         const FiniteOptions& options, FiniteHost& host)
    : metrics_(metrics),
      options_(options),
      ranks_(options.layout.node(options.self).ranks.size()),
      host_(host),
      steps_(ranks_),
      timer_(loop) {}

void FiniteWatch::send(NodeIndex to, decltype(NonfiniteMessage::body) body) {
  host_.send_nonfinite(to, {options_.job, std::move(body)});
}

uint64_t* FiniteWatch::steps_of(LocalRank rank, const core::TensorDescriptor& tensor) {
  auto& steps = steps_[static_cast<size_t>(rank.value)];
  std::string name = std::to_string(tensor.process_set) + ' ' + tensor.name;
  const auto found = steps.find(name);
  if (found != steps.end()) return &found->second;
  if (steps.size() >= limits::kMaxTensorsPerSession) return nullptr;
  return &steps[std::move(name)];
}

void FiniteWatch::on_ended(const InputCheck& check) {
  const size_t found = check.found();
  if (found == 0) return;
  metrics_.nonfinite_contributions.Increment(static_cast<double>(found));
  consider(*check.first());
}

void FiniteWatch::consider(const Nonfinite& value) {
  if (!is_news(value) || (candidate_ && !comes_before(value, *candidate_))) return;
  candidate_ = value;
  if (is_root()) return arm();
  if (sent_up_++ < kMaxSentUp) send(*host_.finite_parent(), FoundNonfinite{value});
}

void FiniteWatch::arm() {
  if (std::exchange(is_armed_, true)) return;
  timer_.expires_after(kCollect);
  timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
    if (!error) decide();
  }));
}

void FiniteWatch::decide() {
  timer_.cancel();
  is_armed_ = false;
  if (candidate_) {
    tell(*std::exchange(candidate_, std::nullopt));
  } else {
    answer_none();
  }
}

void FiniteWatch::flush() {
  if (is_armed_) decide();
}

void FiniteWatch::tell(const Nonfinite& first) {
  told_ = first;
  candidate_.reset();
  sent_up_ = 0;
  asking_.clear();
  asking_nodes_.clear();
  const core::Layout& layout = options_.layout;
  const std::string text = describe(first, layout.node(layout.node_of(first.rank)).node_id) +
                           "; others before step " + std::to_string(2 * first.step) +
                           " are counted (rueda_nonfinite_contributions_total) and not told";
  spdlog::warn("job {}: not finite: {}", options_.job, text);
  const session::NonfiniteNews news{
      first.rank,        first.step,   first.element, static_cast<uint32_t>(first.kind),
      first.process_set, first.tensor, text};
  for (size_t i = 0; i < ranks_; ++i) host_.tell_rank(LocalRank{static_cast<int32_t>(i)}, &news);
  for (const NodeIndex child : host_.finite_children()) send(child, FirstNonfinite{first});
}

void FiniteWatch::answer_none() {
  for (const LocalRank rank : std::exchange(asking_, {})) host_.tell_rank(rank, nullptr);
  for (const NodeIndex node : std::exchange(asking_nodes_, {})) send(node, NoNonfinite{});
}

void FiniteWatch::on_asked(LocalRank rank) {
  const bool is_first = asking_.empty() && asking_nodes_.empty();
  asking_.insert(rank);
  if (is_root()) return arm();
  if (is_first) send(*host_.finite_parent(), AskNonfinite{});
}

// --- Messages ------------------------------------------------------------------------------------

void FiniteWatch::on_message(NodeIndex from, const NonfiniteMessage& message) {
  std::visit([&](const auto& body) { on(from, body); }, message.body);
}

void FiniteWatch::on(NodeIndex, const FoundNonfinite& found) {
  if (options_.layout.has_rank(found.value.rank)) consider(found.value);
}

void FiniteWatch::on(NodeIndex from, const FirstNonfinite& first) {
  if (host_.finite_parent() == from && options_.layout.has_rank(first.value.rank)) {
    tell(first.value);
  }
}

void FiniteWatch::on(NodeIndex from, const AskNonfinite&) {
  const bool is_first = asking_.empty() && asking_nodes_.empty();
  asking_nodes_.insert(from);
  if (is_root()) return arm();
  if (is_first) send(*host_.finite_parent(), AskNonfinite{});
}

void FiniteWatch::on(NodeIndex from, const NoNonfinite&) {
  if (host_.finite_parent() == from) answer_none();
}

void FiniteWatch::on_epoch_started() {
  timer_.cancel();
  is_armed_ = false;
  told_.reset();
  candidate_.reset();
  sent_up_ = 0;
  asking_.clear();
  asking_nodes_.clear();
  for (auto& steps : steps_) steps.clear();
}

}  // namespace rueda::engine
