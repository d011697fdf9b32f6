// Runs a few JobCores and the streams between them, for tests that tell a story event by event.
// Streams keep their order; nothing moves unless the test says so.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/core/job/job.h"
#include "tests/core/builders.h"

namespace rueda::core {

// Lists all modes, for tests that run in each of them.
inline auto all_modes() {
  return testing::Values(Coordination::kNegotiate, Coordination::kCached,
                         Coordination::kGlobalSleep, Coordination::kNonblocking,
                         Coordination::kEventDriven, Coordination::kLocked);
}
inline std::string name_of_mode(const testing::TestParamInfo<Coordination>& mode) {
  std::string name = to_string(mode.param);
  std::erase(name, '-');
  return name;
}

class Cluster {
 public:
  // Holds what one node has told its surroundings so far.
  struct Node {
    std::unique_ptr<JobCore> core;
    std::vector<Launch> launches;
    std::vector<TransferLaunch> transfers;
    std::vector<Cancel> cancels;
    std::vector<std::string> notes;
    std::vector<Delivery> deliveries;
    std::vector<EpochStarted> started;
    std::vector<Epoch> finished;
    std::vector<Status> failed;
    std::vector<StallLine> stall_lines;
    std::vector<std::string> abandoned_plans;
    std::vector<TuningLine> tuning;
    std::vector<Plan> recorded_plans;
  };

  // Makes the nodes. `racks` has the rack of each node, or is empty.
  explicit Cluster(const std::vector<int>& ranks_by_node, JobOptions options = {},
                   const std::vector<std::string>& racks = {})
      : layout_(layout_of(ranks_by_node)) {
    options.job = "train";
    for (int i = 0; i < layout_.node_count(); ++i) {
      options.data_address = "data" + std::to_string(i);
      if (!racks.empty()) options.rack = racks[static_cast<size_t>(i)];
      nodes_.emplace_back();
      nodes_.back().core = std::make_unique<JobCore>(layout_, NodeIndex{i}, options);
    }
  }

  Node& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  JobState state(int index) { return node(index).core->state(); }
  const Layout& layout() const { return layout_; }

  void step(int index, Event event) {
    Output output;
    Node& at = node(index);
    at.core->step(now_, std::move(event), output);
    for (auto& [to, message] : output.sends) {
      spoken_.insert({index, to.value});
      streams_[{index, to.value}].push_back(std::move(message));
    }
    for (TransferSend& send : output.transfer_sends) {
      auto* const offer = std::get_if<TransferOffer>(&send.message);
      if (offer) offer->carried = offer->number % 2 == 0;
      records_[{index, send.to.value}].push_back(
          {NodeIndex{index}, at.core->epoch(), send.process_set, std::move(send.message)});
    }
    append(at.cancels, output.cancels);
    append(at.launches, output.launches);
    append(at.transfers, output.transfers);
    append(at.notes, output.notes);
    append(at.abandoned_plans, output.abandoned_plans);
    append(at.deliveries, output.deliveries);
    if (output.started) at.started.push_back(*output.started);
    if (output.finished) at.finished.push_back(*output.finished);
    if (output.failed) at.failed.push_back(*output.failed);
    append(at.stall_lines, output.stall_lines);
    append(at.tuning, output.tuning);
    if (output.recorded_plan) at.recorded_plans.push_back(*output.recorded_plan);
  }

  // Returns the messages on their way between two nodes.
  std::deque<Message>& stream(int from, int to) { return streams_[{from, to}]; }
  // Returns whether there ever was a message between two nodes.
  bool has_spoken(int from, int to) const { return spoken_.contains({from, to}); }
  // Hands over the stream's first message.
  void deliver(int from, int to) {
    ASSERT_FALSE(stream(from, to).empty());
    Message message = std::move(stream(from, to).front());
    stream(from, to).pop_front();
    step(to, MessageArrived{std::move(message)});
  }
  // Returns what is on its way between two nodes about transfers, over their channel.
  std::deque<TransferMessageArrived>& records(int from, int to) { return records_[{from, to}]; }
  void deliver_record(int from, int to) {
    ASSERT_FALSE(records(from, to).empty());
    TransferMessageArrived record = std::move(records(from, to).front());
    records(from, to).pop_front();
    step(to, std::move(record));
  }
  void end_turns() {
    for (int i = 0; i < layout_.node_count(); ++i) step(i, TurnEnded{});
  }
  // Delivers messages until no node has anything to say.
  void settle() {
    for (bool moved = true; moved;) {
      end_turns();
      moved = false;
      for (auto& [link, records] : records_) {
        while (!records.empty()) {
          deliver_record(link.first, link.second);
          moved = true;
        }
      }
      for (auto& [link, messages] : streams_) {
        while (!messages.empty()) {
          deliver(link.first, link.second);
          moved = true;
        }
      }
    }
  }
  void pass(TicksMs ms) {
    now_ += ms;
    for (int i = 0; i < layout_.node_count(); ++i) step(i, TimePassed{});
  }

  // --- Actions of ranks, which are named by their global number
  void attach(int rank) { step(home(rank), RankAttached{local(rank)}); }
  void detach(int rank) { step(home(rank), RankDetached{local(rank)}); }
  Ticket submit(int rank, const DescriptorPtr& descriptor) {
    const Ticket ticket{next_ticket_++};
    step(home(rank), Submitted{{local(rank), ticket, descriptor}});
    return ticket;
  }
  void submit_everywhere(const DescriptorPtr& descriptor) {
    for (int rank = 0; rank < layout_.world_size(); ++rank) submit(rank, descriptor);
  }
  void start() {
    for (int rank = 0; rank < layout_.world_size(); ++rank) attach(rank);
    settle();
    for (Node& at : nodes_) ASSERT_EQ(at.core->state(), JobState::kRunning);
  }
  // Reports on every node that the data plane has completed the operation.
  void done_everywhere(uint64_t seq) {
    for (int i = 0; i < layout_.node_count(); ++i) step(i, OperationDone{Seq{seq}});
  }

  TicksMs now() const { return now_; }
  int home(int rank) const { return layout_.node_of(Rank{rank}).value; }
  LocalRank local(int rank) const {
    const std::vector<Rank>& ranks = layout_.node(NodeIndex{home(rank)}).ranks;
    return LocalRank{rank - ranks.front().value};
  }

  std::vector<uint64_t> launched(int index) {
    std::vector<uint64_t> numbers;
    for (const Launch& launch : node(index).launches) numbers.push_back(launch.seq.value);
    return numbers;
  }
  // Returns how the submission ended; the test fails unless it ended exactly once.
  Status end_of(int rank, Ticket ticket) {
    std::vector<Status> ends;
    for (const Delivery& delivery : node(home(rank)).deliveries) {
      if (delivery.rank == local(rank) && delivery.ticket == ticket) {
        ends.push_back(delivery.status);
      }
    }
    EXPECT_EQ(ends.size(), 1u) << "ends of ticket " << ticket.value;
    return ends.empty() ? Status(Code::kInternal, "no end") : ends.front();
  }
  bool has_ended(int rank, Ticket ticket) {
    for (const Delivery& delivery : node(home(rank)).deliveries) {
      if (delivery.rank == local(rank) && delivery.ticket == ticket) return true;
    }
    return false;
  }

 private:
  template <class T>
  static void append(std::vector<T>& to, std::vector<T>& from) {
    for (T& item : from) to.push_back(std::move(item));
  }

  const Layout layout_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, std::deque<Message>> streams_;
  std::map<std::pair<int, int>, std::deque<TransferMessageArrived>> records_;
  std::set<std::pair<int, int>> spoken_;
  TicksMs now_ = 1'000'000;  // must not be 0, which means no time
  uint64_t next_ticket_ = 1;
};

}  // namespace rueda::core
