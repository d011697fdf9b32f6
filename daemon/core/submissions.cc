#include "daemon/core/submissions.h"

#include <algorithm>
#include <iterator>

namespace rueda::core {
namespace {

// Names are remembered up to this many; those of a program that never repeats one are not.
constexpr size_t kMostRemembered = 1 << 16;

}  // namespace

std::vector<LocalSubmission> PendingTensor::present() const {
  std::vector<LocalSubmission> found;
  for (const auto& submission : by_local_rank) {
    if (submission) found.push_back(*submission);
  }
  return found;
}

std::vector<LocalSubmission> PendingTensor::take() {
  std::vector<LocalSubmission> taken;
  taken.reserve(static_cast<size_t>(submitted));
  for (auto& submission : by_local_rank) {
    if (submission) taken.push_back(std::move(*submission));
    submission.reset();
  }
  submitted = 0;
  reported = ordered = false;
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
  tensor.by_local_rank[local] = std::move(submission);
  ++tensor.submitted;
  ++submissions_;
  return Status::ok();
}

std::optional<ReadyTensor> SubmissionTable::take_ready(const std::string& name) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return std::nullopt;
  PendingTensor* tensor = &it->second;
  if (tensor->reported || tensor->submitted != static_cast<int>(ranks_.size())) return std::nullopt;
  tensor->reported = true;
  const DescriptorPtr& first = tensor->by_local_rank.front()->descriptor;
  ReadyTensor ready{first, ranks_.front(), tensor->by_local_rank.front()->objection};
  for (size_t i = 1; i < ranks_.size(); ++i) {
    const DescriptorPtr& other = tensor->by_local_rank[i]->descriptor;
    if (ready.mismatch.empty()) ready.mismatch = tensor->by_local_rank[i]->objection;
    if (!ready.mismatch.empty()) break;
    if (*other == *first) continue;
    ready.mismatch = describe_mismatch(*first, ranks_.front(), *other, ranks_[i]);
  }
  return ready;
}

ReadyTensor SubmissionTable::ready(const std::string& name) const {
  const PendingTensor& tensor = tensors_.at(name);
  RUEDA_CHECK(tensor.reported);
  return {tensor.by_local_rank.front()->descriptor, ranks_.front(), {}};
}

const PendingTensor* SubmissionTable::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() || it->second.submitted == 0 ? nullptr : &it->second;
}

void SubmissionTable::set_ordered(const std::string& name, bool ordered) {
  const auto it = tensors_.find(name);
  if (it != tensors_.end() && it->second.submitted > 0) it->second.ordered = ordered;
}

std::vector<std::pair<const std::string*, const PendingTensor*>> SubmissionTable::pending() const {
  std::vector<std::pair<const std::string*, const PendingTensor*>> found;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.submitted > 0) found.emplace_back(&name, &tensor);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return *a.first < *b.first; });
  return found;
}

void SubmissionTable::reset_but(const std::set<std::string>& carried) {
  for (auto& [name, tensor] : tensors_) {
    tensor.reported = tensor.ordered = tensor.submitted > 0 && carried.contains(name);
  }
}

bool SubmissionTable::has(LocalRank rank, const std::string& name) const {
  const PendingTensor* tensor = find(name);
  return tensor && tensor->by_local_rank[static_cast<size_t>(rank.value)].has_value();
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
  if (tensors_.size() > kMostRemembered) tensors_.erase(it);
  submissions_ -= removed.size();
  return removed;
}

std::vector<LocalSubmission> SubmissionTable::remove_unreported() {
  std::vector<LocalSubmission> removed;
  for (const auto& [name, tensor] : pending()) {
    if (tensor->reported) continue;
    std::vector<LocalSubmission> some = tensors_.at(*name).take();
    std::move(some.begin(), some.end(), std::back_inserter(removed));
  }
  submissions_ -= removed.size();
  return removed;
}

std::vector<LocalSubmission> SubmissionTable::remove_all() {
  std::vector<LocalSubmission> removed;
  for (const auto& [name, tensor] : pending()) {
    std::vector<LocalSubmission> some = tensor->present();
    std::move(some.begin(), some.end(), std::back_inserter(removed));
  }
  tensors_.clear();
  submissions_ = 0;
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
