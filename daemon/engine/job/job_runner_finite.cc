// JobRunner's side of the check for NaN and infinity.

#include <utility>

#include "daemon/engine/job/job_runner.h"

namespace rueda::engine {

// What comes again is counted where it was.
void JobRunner::count_step(LocalRank rank, Held& item) {
  const core::TensorDescriptor& tensor = *item.descriptor;
  item.step = 1;
  if (!InputCheck::looks_at(tensor.kind, tensor.dtype)) return;
  if (!item.steps) item.steps = finite_.steps_of(rank, tensor);
  if (item.steps) item.step = ++*item.steps;
}

std::shared_ptr<InputCheck> JobRunner::check_of(const core::Launch& launch) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  if (!InputCheck::looks_at(first.kind, first.dtype)) return nullptr;
  const core::Collectives& set = *find_set(launch.process_set);
  const size_t ranks = launch.tickets.size() / launch.tensors->size();
  std::vector<InputCheck::Contribution> contributions;
  contributions.reserve(launch.tickets.size());
  auto ticket = launch.tickets.begin();
  for (const core::LaunchTensor& tensor : *launch.tensors) {
    for (size_t i = 0; i < ranks; ++i, ++ticket) {
      if (!*ticket) continue;  // it has joined
      const LocalRank rank = set.locals()[i];
      const Held& item = held(rank, **ticket);
      const size_t bytes = static_cast<size_t>(tensor.elements) * element_bytes(first.dtype);
      if (!item.buffers.input || bytes == 0) continue;
      contributions.push_back({item.buffers.input, bytes, core_.global_rank(rank), item.step,
                               item.buffers.urgency.submitted, item.descriptor});
    }
  }
  return std::make_shared<InputCheck>(first.dtype, std::move(contributions));
}

void JobRunner::send_nonfinite(NodeIndex to, NonfiniteMessage message) {
  if (const std::optional<LinkId> link = link_to(to)) {
    context_.control_plane.send(*link, message);
  }
}

void JobRunner::on_nonfinite(LinkId link, NonfiniteMessage message) {
  if (const auto from = node_behind(link)) finite_.on_message(*from, message);
}

void JobRunner::tell_rank(LocalRank rank, const session::NonfiniteNews* news) {
  const Local& to = local(rank);
  if (to.session && !to.attach_deferred) to.session->nonfinite(news);
}

void JobRunner::on_nonfinite_asked(session::Session& session) {
  finite_.on_asked(session.attach().local_rank);
}

}  // namespace rueda::engine
