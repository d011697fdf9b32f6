// The process sets of a job on one node: the set of all ranks, with id 0, and those that the ranks
// have added. It knows which sets there are, gives out their ids, and finds the set that a
// submission is for. JobCore (job.h) owns it, runs it on its own loop, and decides what happens
// after an error. The class is pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/job/collectives.h"
#include "daemon/core/job/job_events.h"
#include "daemon/core/job/job_options.h"
#include "daemon/core/job/transfers.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/stall/node_activity.h"

namespace rueda::core {

class ProcessSets {
 public:
  // The layout and the options are the job's, and outlive this object.
  ProcessSets(const Layout& layout, NodeIndex self, const JobOptions& options);
  ProcessSets(const ProcessSets&) = delete;
  ProcessSets& operator=(const ProcessSets&) = delete;

  // Tells every set the time. What is called afterwards happens at that time.
  void set_now(TicksUs now);
  // An epoch begins, with the set of all ranks alone. `recovery` is null under policy `fail`;
  // otherwise it outlives the epoch.
  void begin(Epoch epoch, Recovery* recovery);
  // Under policy `shrink` the job goes on in the next epoch (Collectives::adopt()).
  void adopt(const NextEpoch& next, Output& output);
  // The epoch is over, with nothing in flight: removes all added sets, and counts ids anew.
  void end();
  // The job has failed: ends all submissions to all sets with the cause.
  void fail(const Status& cause, Output& output);

  // --- Which sets there are
  Collectives& all_ranks() { return all_ranks_; }
  const Collectives& all_ranks() const { return all_ranks_; }
  // Returns null if there is no such set.
  Collectives* find(uint32_t id);
  const Collectives* find(uint32_t id) const;
  // The set of all ranks, then the added sets by id.
  std::vector<Collectives*> every();
  std::vector<const Collectives*> every() const;
  std::vector<Collectives*> added();
  // Returns the transfers between ranks, of all sets.
  Transfers& transfers() { return transfers_; }
  const Transfers& transfers() const { return transfers_; }
  // Returns the ids of every(). A caller whose work adds or removes sets finds each set by its id
  // again.
  std::vector<uint32_t> ids() const;
  // Returns whether a set with this id was added in this epoch; it may have been removed since.
  bool was_added(uint32_t id) const { return id <= last_id_; }
  // Returns the error for an id that find() does not find.
  Status unknown(uint32_t id) const;
  // Returns whether this node still needs the set's data channels. It does not after all of its
  // ranks have asked to remove the set: another node may have closed its channels already.
  bool is_wanted(uint32_t id);

  // --- Submissions
  // Hands the submission to its set, or ends it with an error that its rank will see.
  void submit(LocalSubmission submission, Output& output);
  // These count submissions that have not ended, of all ranks of this node or of one.
  size_t in_flight() const;
  size_t submissions_of(LocalRank rank) const;
  // The rank sleeps until the submission with this ticket ends; with no ticket it is awake.
  void set_waited(LocalRank rank, std::optional<Ticket> ticket);

  // --- The order
  bool is_any_locked() const;
  // Adds and removes sets as these operations of the set of all ranks say, and writes the results
  // into them. All nodes do so at the same places of the same order, so that a set has the same id
  // on all of them.
  void carry_out_changes(std::vector<OrderedOperation>& ordered, Output& output);
  // Launches what the set has room for. A join of all ranks waits for the joins of the added sets
  // to end, and is launched with the last of them. An error ends the epoch.
  Status launch_ordered(Collectives& set, Output& output);
  // Returns when a set has something to do next, or none if nothing is due before something else
  // happens.
  std::optional<TicksUs> wakes_at_us() const;

 private:
  struct AddedSet {
    AddedSet(uint32_t id, Layout of, std::vector<LocalRank> locals, NodeIndex self,
             const JobOptions& options, NodeActivity& activity)
        : layout(std::move(of)),
          collectives(id, layout, std::move(locals), self, options, activity) {}
    const Layout layout;
    Collectives collectives;
  };

  bool recovers() const { return options_.recovery.policy == DeathPolicy::kShrink; }
  // Returns text such as "rank 3", which is how messages name a rank of this node.
  std::string name(LocalRank rank) const;
  // Returns the id of the set that the rank has asked to remove, until that is done, or 0 if there
  // is none.
  uint32_t being_removed_by(LocalRank rank) const;
  // Returns why the rank may not submit this because of joins (L11).
  Status check_joins(const LocalSubmission& submission) const;
  void join(const LocalSubmission& submission, Output& output);
  // Returns why the rank may not submit this to the set of the descriptor; ok if it may.
  Status check_set(const LocalSubmission& submission) const;
  // Returns why a send or a receive cannot be; ok if it can.
  Status check_transfer(const LocalSubmission& submission) const;
  Status check_new(const std::vector<Rank>& ranks) const;
  Result<uint32_t> add(const TensorDescriptor& descriptor, Output& output);
  Result<uint32_t> remove(uint32_t id, Output& output);

  const Layout& layout_;
  const NodeIndex self_;
  const JobOptions& options_;
  TicksUs now_ = 0;
  Epoch epoch_;            // The epoch that runs.
  NodeActivity activity_;  // What this node's ranks do, over all sets.
  Transfers transfers_;
  Collectives all_ranks_;
  std::map<uint32_t, std::unique_ptr<AddedSet>> added_;  // By id.
  uint32_t last_id_ = 0;                                 // The last id given out in this epoch.
};

}  // namespace rueda::core
