// The coordinator's part of every mode. It counts which nodes have reported a tensor, and calls the
// order of those that all have reported.
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

// An operation with the descriptors of its batch, which are missing if the operation is an error.
struct DecreedOperation {
  OrderedOperation operation;
  std::vector<DescriptorPtr> batch;
  bool is_within_group = false;  // After it, a group has been decreed in part.
  bool while_joined = false;     // Some rank has joined (L11).
};

class Coordinator {
 public:
  Coordinator(const Layout& layout, const AgreementOptions& options)
      : layout_(layout), options_(options), begun_(options.begun) {
    for (size_t track = 0; track < kTracks; ++track) orders_[track].last = options.taken[track];
  }

  // Takes in that these nodes have reported the tensor, alike. An error says that one of them broke
  // the protocol.
  Status on_report(const std::vector<NodeIndex>& from, const ReadyTensor& tensor);
  void on_rank_left(Rank rank);
  void on_operation_ended(Seq seq);
  // Appends the operations that have to be decreed now.
  void call(std::vector<DecreedOperation>& called);

  // Forgets what was reported for the lockable track, which a plan takes over (L4).
  void suspend_lockable();
  // Decrees of the lockable track go on at this number (L7). The other tensors of the groups in
  // `begun` come without those that the plan has launched already.
  void resume_lockable(Seq first, BegunGroups begun);
  // Returns whether some tensors of a group have been decreed, or launched by a plan, and others
  // have not, because they are unlike, or because the plan was given up between them.
  bool is_within_group() const;
  Seq last(Track track) const { return of(track).last; }
  // Returns whether call() had, or would have, more to decree.
  bool has_waiting() const;
  // Returns whether nodes have reported one tensor differently, and not all have reported it.
  bool has_unfinished_mismatch() const;
  // Returns whether some rank has joined, and the join has not been decreed (L11).
  bool has_anybody_joined() const { return is_anybody_absent_ || !joined_.empty(); }

 private:
  struct Entry {
    DescriptorPtr descriptor;  // As the lowest rank that has reported it submitted it.
    Rank rank;
    std::vector<bool> reported;  // The index is that of the node.
    int reports = 0;
    Rank absent{-1};  // A rank that has joined without submitting the tensor; -1 if none is known.
    Code error_code = Code::kOk;
    std::string error;
  };
  // The complete tensors of a group that waits for the others.
  struct Group {
    std::vector<DescriptorPtr> tensors;
    Status error;
  };
  // A group of which some tensors are in the queue.
  struct Parts {
    size_t waiting = 0;      // How many tensors are in the queue.
    bool has_begun = false;  // Other tensors of it have been decreed, or launched by a plan.
  };
  struct Order {
    Seq last;
    std::deque<FusionUnit> queue;
    std::vector<OrderedOperation> errors;
    std::set<Seq> open;  // Operations that are decreed and not complete here.
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
  std::map<std::string, Entry> table_;  // Ordered, because what happens must not depend on hashing.
  std::map<std::string, Group> groups_;
  std::map<std::pair<Track, std::string>, Parts> parts_;  // The key is a track and a group's name.
  BegunGroups begun_;  // These groups were begun by a plan, or in the epoch before.
  std::array<Order, kTracks> orders_;
  std::set<Rank> left_;
  // These three are about joins (L11), until the join is decreed.
  std::set<NodeIndex> joined_;  // Nodes whose ranks have all joined.
  Rank last_joined_;
  bool is_anybody_absent_ = false;  // A tensor that was reported lacks a rank.
};

}  // namespace rueda::core
