#include "tests/sim/checkers.h"

#include <algorithm>

namespace rueda::sim {
namespace {

std::string name_of(NodeIndex node) { return "n" + std::to_string(node.value); }
std::string name_of(Rank rank) { return "rank " + std::to_string(rank.value); }
std::string name_of(Seq seq) { return "operation " + std::to_string(seq.value); }

}  // namespace

Checkers::Checkers(const core::Layout& layout, int window)
    : layout_(layout),
      window_(static_cast<uint64_t>(window)),
      nodes_(static_cast<size_t>(layout.node_count())),
      open_(static_cast<size_t>(layout.world_size())),
      dead_(static_cast<size_t>(layout.world_size())) {}

void Checkers::violated(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void Checkers::before_step(NodeIndex node, const core::JobCore& core, const core::Event& event) {
  Node& model = at(node);
  model.sealed =
      core.state() == core::JobState::kSuspecting || core.state() == core::JobState::kFailed;
  if (const auto* submitted = std::get_if<core::Submitted>(&event)) {
    const core::LocalSubmission& submission = submitted->submission;
    open(rank_of(node, submission.rank)).emplace(submission.ticket.value, submission.descriptor);
  } else if (const auto* done = std::get_if<core::OperationDone>(&event)) {
    model.under_way.erase(done->seq.value);
    model.completed.insert(done->seq.value);
  }
}

void Checkers::after_step(NodeIndex node, const core::JobCore& core, const core::Event&,
                          const core::Output& output) {
  Node& model = at(node);
  if (output.started) {
    if (output.started->epoch.value <= model.epoch)
      violated("I5: an epoch came twice on " + name_of(node));
    model.epoch = output.started->epoch.value;
    model.last_launched = 0;
    model.completed.clear();
  }
  // A suspicion that turned out to be none lifts the seal.
  const bool sealed = model.sealed && (core.state() == core::JobState::kSuspecting ||
                                       core.state() == core::JobState::kFailed);
  if (sealed && !output.launches.empty()) violated("R3: " + name_of(node) + " launched after seal");
  for (const core::Launch& launch : output.launches) on_launch(node, launch);
  for (const core::Delivery& delivery : output.deliveries) {
    if (sealed && delivery.status.is_ok())
      violated("R3: " + name_of(node) + " delivered after seal");
    on_delivery(node, delivery);
  }
  if (output.finished && !model.under_way.empty()) {
    violated("I5: " + name_of(node) + " finished an epoch under " +
             name_of(Seq{*model.under_way.begin()}));
  }
  if (output.failed) {
    model.under_way.clear();
    model.failed = true;
  }
}

void Checkers::on_launch(NodeIndex node, const core::Launch& launch) {
  if (launch.tensors.empty()) violated("I5: " + name_of(launch.seq) + " carries nothing");
  check_order(node, launch);
  check_window(node, launch);
  check_descriptors(node, launch);
  check_same_everywhere(node, launch);
}

void Checkers::check_order(NodeIndex node, const core::Launch& launch) {
  Node& model = at(node);
  if (launch.epoch.value != model.epoch) {
    violated("I5: " + name_of(launch.seq) + " of epoch " + std::to_string(launch.epoch.value) +
             " launched on " + name_of(node) + " in epoch " + std::to_string(model.epoch));
  }
  if (launch.seq.value <= model.last_launched) {
    violated("L5: " + name_of(node) + " launched " + name_of(launch.seq) + " after " +
             name_of(Seq{model.last_launched}));
  }
  // What it passed over must be an operation that failed: then nobody launches it.
  for (uint64_t seq = model.last_launched + 1; seq < launch.seq.value; ++seq) {
    Operation& passed = operations_[key(launch.epoch, Seq{seq})];
    if (!passed.launched_on.empty()) {
      violated("I5: " + name_of(node) + " passed over " + name_of(Seq{seq}) + ", which n" +
               std::to_string(*passed.launched_on.begin()) + " launched");
    }
    passed.failed = true;
  }
  model.last_launched = launch.seq.value;
}

void Checkers::check_window(NodeIndex node, const core::Launch& launch) {
  Node& model = at(node);
  if (!model.under_way.empty() && launch.seq.value >= *model.under_way.begin() + window_) {
    violated("L5: " + name_of(node) + " launched " + name_of(launch.seq) + " while " +
             name_of(Seq{*model.under_way.begin()}) + " was not complete");
  }
  for (const uint64_t other : model.under_way) {
    if (other % window_ == launch.seq.value % window_) {
      violated("credit: " + name_of(launch.seq) + " and " + name_of(Seq{other}) +
               " share a lane on " + name_of(node));
    }
  }
  model.under_way.insert(launch.seq.value);
}

void Checkers::check_descriptors(NodeIndex node, const core::Launch& launch) {
  const std::vector<Rank>& ranks = layout_.node(node).ranks;
  const core::TensorDescriptor& first = *launch.tensors.front().descriptor;
  for (const core::LaunchTensor& tensor : launch.tensors) {
    const core::TensorDescriptor& descriptor = *tensor.descriptor;
    if (&descriptor != &first && !core::can_fuse(first, descriptor)) {
      violated("agreement: " + name_of(launch.seq) + " fuses " + first.name + " and " +
               descriptor.name + ", which are unlike");
    }
    if (tensor.tickets.size() != ranks.size()) {
      violated("agreement: " + name_of(launch.seq) + " lacks a rank of " + name_of(node));
      return;
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto it = open(ranks[i]).find(tensor.tickets[i].value);
      if (it == open(ranks[i]).end()) {
        if (!dead_[static_cast<size_t>(ranks[i].value)]) {
          violated("agreement: " + name_of(launch.seq) + " takes " + descriptor.name + " of " +
                   name_of(ranks[i]) + ", which has not submitted it");
        }
      } else if (*it->second != descriptor) {
        violated("agreement: " + name_of(launch.seq) + " takes " + descriptor.name + " of " +
                 name_of(ranks[i]) + ", which submitted another descriptor");
      }
    }
  }
}

void Checkers::check_same_everywhere(NodeIndex node, const core::Launch& launch) {
  Operation& operation = operations_[key(launch.epoch, launch.seq)];
  if (operation.failed) {
    violated("I5: " + name_of(node) + " launched " + name_of(launch.seq) +
             ", which failed elsewhere");
  }
  if (operation.launched_on.empty()) {
    operation.plan_hash = launch.plan_hash;
    operation.kind = launch.tensors.front().descriptor->kind;
    for (const core::LaunchTensor& tensor : launch.tensors) {
      operation.tensors.push_back(tensor.descriptor);
    }
  } else if (operation.plan_hash != launch.plan_hash ||
             !std::equal(operation.tensors.begin(), operation.tensors.end(), launch.tensors.begin(),
                         launch.tensors.end(),
                         [](const core::DescriptorPtr& a, const core::LaunchTensor& b) {
                           return *a == *b.descriptor;
                         })) {
    violated("I5: " + name_of(launch.seq) + " is another batch on " + name_of(node) + " than on n" +
             std::to_string(*operation.launched_on.begin()));
  }
  operation.launched_on.insert(node.value);
}

void Checkers::on_delivery(NodeIndex node, const core::Delivery& delivery) {
  const Rank rank = rank_of(node, delivery.rank);
  const auto it = open(rank).find(delivery.ticket.value);
  if (it == open(rank).end()) {
    if (!dead_[static_cast<size_t>(rank.value)]) {
      violated("I5: ticket " + std::to_string(delivery.ticket.value) + " of " + name_of(rank) +
               " ended twice");
    }
    return;
  }
  const core::DescriptorPtr descriptor = it->second;
  open(rank).erase(it);
  if (delivery.status.is_ok()) {
    check_value(node, delivery, *descriptor);
  } else {
    if (delivery.status.message().empty()) violated("I5: an error without a sentence");
    if (delivery.seq.value == 0) return;
    Operation& operation = operations_[key(delivery.epoch, delivery.seq)];
    if (!operation.launched_on.empty()) {
      violated("I5: " + name_of(delivery.seq) + " failed by decree on " + name_of(node) +
               " and was launched on n" + std::to_string(*operation.launched_on.begin()));
    }
    operation.failed = true;
  }
}

void Checkers::check_value(NodeIndex node, const core::Delivery& delivery,
                           const core::TensorDescriptor& descriptor) {
  Node& model = at(node);
  if (delivery.epoch.value != model.epoch) violated("I5: a delivery of another epoch");
  if (!model.completed.contains(delivery.seq.value)) {
    violated("I5: " + name_of(node) + " delivered " + name_of(delivery.seq) +
             " before it was complete");
  }
  const Operation& operation = operations_[key(delivery.epoch, delivery.seq)];
  if (std::none_of(operation.tensors.begin(), operation.tensors.end(),
                   [&](const core::DescriptorPtr& tensor) { return *tensor == descriptor; })) {
    violated("agreement: " + name_of(delivery.seq) + " delivered " + descriptor.name +
             ", which is not in it as submitted");
  }
  if (delivery.contributors != static_cast<uint32_t>(layout_.world_size())) {
    violated("R6: a delivery names " + std::to_string(delivery.contributors) + " contributors");
  }
  for (int other = 0; other < layout_.node_count(); ++other) {
    if (operation.launched_on.contains(other)) continue;
    if (operation.kind != CollectiveKind::kBroadcast) {
      violated("L1: " + name_of(node) + " delivered " + name_of(delivery.seq) + " before n" +
               std::to_string(other) + " launched it");
    }
    // A broadcast may end here before another member begins; but all have agreed to it.
    for (const Rank rank : layout_.node(NodeIndex{other}).ranks) {
      if (!has_submitted(rank, descriptor)) {
        violated("agreement: " + name_of(node) + " delivered " + descriptor.name + " before " +
                 name_of(rank) + " submitted it");
      }
    }
  }
}

bool Checkers::has_submitted(Rank rank, const core::TensorDescriptor& descriptor) const {
  if (dead_[static_cast<size_t>(rank.value)]) return true;
  const Node& node = nodes_[static_cast<size_t>(layout_.node_of(rank).value)];
  if (!node.alive || node.failed) return true;
  return std::any_of(open(rank).begin(), open(rank).end(),
                     [&](const auto& entry) { return *entry.second == descriptor; });
}

void Checkers::on_rank_died(Rank rank) {
  dead_[static_cast<size_t>(rank.value)] = true;
  open(rank).clear();
}

void Checkers::on_node_died(NodeIndex node) {
  at(node).alive = false;
  for (Rank rank : layout_.node(node).ranks) on_rank_died(rank);
}

bool Checkers::anything_open() const {
  return std::any_of(open_.begin(), open_.end(), [](const auto& open) { return !open.empty(); });
}

void Checkers::at_end() {
  for (int32_t rank = 0; rank < layout_.world_size(); ++rank) {
    if (open(Rank{rank}).empty()) continue;
    violated("liveness: " + name_of(Rank{rank}) + " waits for " +
             open(Rank{rank}).begin()->second->name + " for ever");
  }
  for (int node = 0; node < layout_.node_count(); ++node) {
    const Node& model = nodes_[static_cast<size_t>(node)];
    if (!model.alive || model.under_way.empty()) continue;
    violated("credit: n" + std::to_string(node) + " never gave back the lane of " +
             name_of(Seq{*model.under_way.begin()}));
  }
}

}  // namespace rueda::sim
