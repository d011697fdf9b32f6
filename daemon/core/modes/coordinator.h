// The coordinator's part of every mode: counts which nodes have reported a tensor, and calls the
// order of those that all have.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/model/track.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/order/begun_groups.h"

namespace rueda::core {

// An operation with the descriptors of its batch; empty with an error.
struct DecreedOperation {
  OrderedOperation operation;
  std::vector<DescriptorPtr> batch;
  bool is_within_group = false;  // of a group some tensors have been decreed now, and others not
  bool while_joined = false;     // some rank has joined (L11)
};

class Coordinator {
 public:
  Coordinator(const Layout& layout, const AgreementOptions& options)
      : layout_(layout), options_(options), begun_(options.begun) {
    for (size_t track = 0; track < kTracks; ++track) orders_[track].last = options.taken[track];
  }

  // These nodes have reported the tensor, alike. The error: one of them broke the protocol.
  Status on_report(const std::vector<NodeIndex>& from, const ReadyTensor& tensor);
  void on_rank_left(Rank rank);
  void on_operation_ended(Seq seq);
  // Appends the operations that are to be decreed now.
  void call(std::vector<DecreedOperation>& called);

  // L4: a plan takes over the lockable track; what was reported for it is forgotten.
  void suspend_lockable();
  // L7: decrees go on at this number. The rest of these groups comes without the others, which the
  // plan has launched already.
  void resume_lockable(Seq first, BegunGroups begun);
  // Of a group some tensors have been decreed, or launched by a plan, and others not: they are
  // unlike, or the plan was given up between them.
  bool is_within_group() const;
  Seq last(Track track) const { return of(track).last; }
  // call() had, or would have, more to decree.
  bool has_waiting() const;
  // Nodes have reported one tensor differently, and not all have reported it.
  bool has_unfinished_mismatch() const;
  // L11: some rank has joined, and the join has not been decreed.
  bool has_anybody_joined() const { return is_anybody_absent_ || !joined_.empty(); }

 private:
  struct Entry {
    DescriptorPtr descriptor;  // of the lowest rank that has reported
    Rank rank;
    std::vector<bool> reported;  // by node
    int reports = 0;
    Rank absent{-1};  // has joined, and has not submitted it; -1: not known
    Code error_code = Code::kOk;
    std::string error;
  };
  // Complete members of a group that waits for the rest.
  struct Group {
    std::vector<DescriptorPtr> tensors;
    Status error;
  };
  // Of a group that is in the queue.
  struct Parts {
    size_t waiting = 0;      // tensors
    bool has_begun = false;  // others have been decreed, or launched by a plan
  };
  struct Order {
    Seq last;
    std::deque<FusionUnit> queue;
    std::vector<OrderedOperation> errors;
    std::set<Seq> open;  // decreed and not complete here
  };

  Order& of(Track track) { return orders_[index_of(track)]; }
  const Order& of(Track track) const { return orders_[index_of(track)]; }

  void on_node_joined(NodeIndex node, Rank last);
  bool is_complete(const Entry& entry) const;
  bool can_complete(const Entry& entry) const;
  static void note_error(Entry& entry, Code code, std::string text);
  void check_root(Entry& entry) const;
  void check_absent(Entry& entry) const;
  void finish(Entry entry);
  void fail_groups();
  void enqueue(std::vector<DescriptorPtr> tensors, const Status& error, bool is_cut_off = false);
  void note_decreed(const std::vector<DescriptorPtr>& batch);

  const Layout& layout_;
  const AgreementOptions options_;
  std::map<std::string, Entry> table_;  // ordered: what happens must not depend on hashing
  std::map<std::string, Group> groups_;
  std::map<std::pair<Track, std::string>, Parts> parts_;  // by group
  BegunGroups begun_;                                     // by a plan, or in the epoch before
  std::array<Order, kTracks> orders_;
  std::set<Rank> left_;
  // L11, until the join is decreed.
  std::set<NodeIndex> joined_;  // all their ranks have
  Rank last_joined_;
  bool is_anybody_absent_ = false;  // in a tensor that was reported
};

}  // namespace rueda::core
