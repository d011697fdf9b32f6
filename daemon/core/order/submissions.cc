#include "daemon/core/order/submissions.h"

#include <algorithm>
#include <iterator>

#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

// Up to this many names are remembered. Beyond that, names of a program that never repeats one are
// forgotten.
constexpr size_t kMaxRemembered = 1 << 16;

}  // namespace

std::vector<LocalSubmission> PendingTensor::present() const {
  std::vector<LocalSubmission> found;
  for (const auto& submission : by_local_rank) {
    if (submission) found.push_back(*submission);
  }
  return found;
}

const LocalSubmission& PendingTensor::first() const {
  const auto it = std::find_if(by_local_rank.begin(), by_local_rank.end(),
                               [](const auto& submission) { return submission.has_value(); });
  RUEDA_CHECK(it != by_local_rank.end());
  return **it;
}

std::vector<LocalSubmission> PendingTensor::take() {
  std::vector<LocalSubmission> taken;
  taken.reserve(static_cast<size_t>(submitted));
  for (auto& submission : by_local_rank) {
    if (submission) taken.push_back(std::move(*submission));
    submission.reset();
  }
  submitted = 0;
  reported = disagrees = ordered = launched = false;
  return taken;
}

Status SubmissionTable::add(LocalSubmission submission) {
  const std::string& name = submission.descriptor->name;
  PendingTensor& tensor = tensors_[name];
  tensor.by_local_rank.resize(ranks_.size());
  const auto local = static_cast<size_t>(submission.rank.value);
  RUEDA_CHECK(local < ranks_.size());
  if (tensor.by_local_rank[local]) {
    return Status(Code::kDuplicateName,
                  "rank " + std::to_string(ranks_[local].value) + " submitted tensor \"" + name +
                      "\" again before its first submission was complete; wait for the first, or "
                      "use another name");
  }
  if (submission.descriptor->kind == CollectiveKind::kJoin) {
    joined_[local] = true;
    ++joined_count_;
  }
  tensor.by_local_rank[local] = std::move(submission);
  ++tensor.submitted;
  ++submissions_;
  return Status::ok();
}

// A rank may have submitted the tensor and joined since, so both are looked at for each rank.
bool SubmissionTable::is_complete(const PendingTensor& tensor) const {
  const auto submitted = static_cast<size_t>(tensor.submitted);
  if (submitted == ranks_.size()) return true;
  if (joined_count_ == 0) return false;
  if (RUEDA_MUTANT(kJoinedRankCountedTwice)) return submitted + joined_count_ >= ranks_.size();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!tensor.by_local_rank[i] && !joined_[i]) return false;
  }
  return true;
}

void SubmissionTable::note_removed(const std::vector<LocalSubmission>& removed) {
  submissions_ -= removed.size();
  if (joined_count_ == 0) return;
  for (const LocalSubmission& submission : removed) {
    if (submission.descriptor->kind != CollectiveKind::kJoin) continue;
    joined_[static_cast<size_t>(submission.rank.value)] = false;
    --joined_count_;
  }
}

std::optional<ReadyTensor> SubmissionTable::take_ready(const std::string& name) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return std::nullopt;
  PendingTensor* tensor = &it->second;
  if (tensor->reported || tensor->submitted == 0 || !is_complete(*tensor)) return std::nullopt;
  tensor->reported = true;
  const LocalSubmission& lowest = tensor->first();
  const DescriptorPtr& first = lowest.descriptor;
  const Rank rank = ranks_[static_cast<size_t>(lowest.rank.value)];
  ReadyTensor ready{first, rank, lowest.objection};
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::optional<LocalSubmission>& other = tensor->by_local_rank[i];
    if (!other) {
      ready.absent = ranks_[i];
    } else if (ready.mismatch.empty() && !other->objection.empty()) {
      ready.mismatch = other->objection;
    } else if (ready.mismatch.empty() && *other->descriptor != *first) {
      ready.mismatch = describe_mismatch(*first, rank, *other->descriptor, ranks_[i]);
    }
  }
  tensor->disagrees = !ready.mismatch.empty();
  return ready;
}

ReadyTensor SubmissionTable::ready(const std::string& name) const {
  const PendingTensor& tensor = tensors_.at(name);
  RUEDA_CHECK(tensor.reported);
  return {tensor.first().descriptor, ranks_.front(), {}};
}

const PendingTensor* SubmissionTable::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() || it->second.submitted == 0 ? nullptr : &it->second;
}

void SubmissionTable::set_ordered(const std::string& name, bool ordered) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end() || it->second.submitted == 0) return;
  it->second.ordered = ordered;
  it->second.launched = it->second.launched && ordered;
}

std::vector<std::pair<const std::string*, const PendingTensor*>> SubmissionTable::pending() const {
  return pending(tensors_.size());
}

std::vector<std::pair<const std::string*, const PendingTensor*>> SubmissionTable::pending(
    size_t most) const {
  std::vector<std::pair<const std::string*, const PendingTensor*>> found;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.submitted > 0) found.emplace_back(&name, &tensor);
  }
  const auto is_before = [](const auto& a, const auto& b) { return *a.first < *b.first; };
  if (found.size() > most) {
    const auto end = found.begin() + static_cast<std::ptrdiff_t>(most);
    std::nth_element(found.begin(), end, found.end(), is_before);
    found.erase(end, found.end());
  }
  std::sort(found.begin(), found.end(), is_before);
  return found;
}

void SubmissionTable::reset_but(const std::set<std::string>& carried) {
  for (auto& [name, tensor] : tensors_) {
    tensor.reported = tensor.ordered = tensor.submitted > 0 && carried.contains(name);
    tensor.launched = false;
  }
}

bool SubmissionTable::has(LocalRank rank, const std::string& name) const {
  const PendingTensor* tensor = find(name);
  return tensor && tensor->by_local_rank[static_cast<size_t>(rank.value)].has_value();
}

DescriptorPtr SubmissionTable::descriptor_of(const OrderedOperation& operation,
                                             size_t place) const {
  if (have_all_joined() && place < operation.descriptors.size())
    return operation.descriptors[place];
  const PendingTensor* tensor = find(operation.tensors[place]);
  return tensor && tensor->reported ? tensor->first().descriptor : nullptr;
}

void SubmissionTable::set_waited(LocalRank rank, std::optional<Ticket> ticket) {
  waited_[static_cast<size_t>(rank.value)] = ticket;
}

const std::string* SubmissionTable::waited_by(LocalRank rank) const {
  const auto local = static_cast<size_t>(rank.value);
  if (!waited_[local] || submissions_ == 0) return nullptr;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.submitted == 0) continue;
    const std::optional<LocalSubmission>& submission = tensor.by_local_rank[local];
    if (submission && submission->ticket == *waited_[local]) return &name;
  }
  return nullptr;
}

std::vector<LocalSubmission> SubmissionTable::remove(const std::string& name) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return {};
  std::vector<LocalSubmission> removed = it->second.take();
  if (tensors_.size() > kMaxRemembered) tensors_.erase(it);
  note_removed(removed);
  return removed;
}

std::vector<LocalSubmission> SubmissionTable::remove_unreported() {
  std::vector<LocalSubmission> removed;
  for (const auto& [name, tensor] : pending()) {
    if (tensor->reported) continue;
    std::vector<LocalSubmission> some = tensors_.at(*name).take();
    std::move(some.begin(), some.end(), std::back_inserter(removed));
  }
  note_removed(removed);
  return removed;
}

std::vector<LocalSubmission> SubmissionTable::remove_all() {
  std::vector<LocalSubmission> removed;
  for (const auto& [name, tensor] : pending()) {
    std::vector<LocalSubmission> some = tensor->present();
    std::move(some.begin(), some.end(), std::back_inserter(removed));
  }
  tensors_.clear();
  note_removed(removed);
  return removed;
}

size_t SubmissionTable::submissions_of(LocalRank rank) const {
  size_t count = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.submitted > 0 && tensor.by_local_rank[static_cast<size_t>(rank.value)]) ++count;
  }
  return count;
}

}  // namespace rueda::core
