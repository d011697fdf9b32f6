#include "daemon/engine/job/generation_links.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"
#include "daemon/engine/ports/proof.h"

namespace rueda::engine {

GenerationLinks::~GenerationLinks() {
  for (const auto& [address, dialled] : dialled_) control_plane_.release(dialled.link);
  for (const LinkId link : bound_) control_plane_.unbind(link, job_);
}

void GenerationLinks::send(TicksMs now, const std::string& address,
                           const core::GenerationMessage& message) {
  const LinkId link = link_to(now, address);
  if (link == 0) return;
  std::string body = control_plane_.encode(message);
  control_plane_.send(link, GenerationPacket{job_, std::move(body), {proof_key_, {}, {}}});
}

LinkId GenerationLinks::link_to(TicksMs now, const std::string& address) {
  const auto accepted = accepted_.find(address);
  if (accepted != accepted_.end()) return accepted->second;
  // Addresses come from other nodes. A job has no more of them.
  if (!dialled_.contains(address) && dialled_.size() >= limits::kMaxNodes) return 0;
  Dialled& dialled = dialled_[address];
  if (dialled.link == 0) dialled.link = control_plane_.acquire(address);
  dialled.used = now;
  return dialled.link;
}

bool GenerationLinks::has_dialled(LinkId link) const {
  return std::any_of(dialled_.begin(), dialled_.end(),
                     [&](const auto& entry) { return entry.second.link == link; });
}

std::optional<core::GenerationMessage> GenerationLinks::open(LinkId link,
                                                             const GenerationPacket& packet) {
  if (!holds(packet.proof, proof_key_)) {
    warn_once("does not prove to belong to the job");
    return std::nullopt;
  }
  Result<core::GenerationMessage> message = control_plane_.decode(packet.body);
  if (!message.is_ok()) {
    spdlog::warn("job {}: {}", job_, one_line(message.status().message()));
    return std::nullopt;
  }
  const std::string certified = control_plane_.node_of(link);
  if (const std::string& said = message.value().from.node_id;
      !certified.empty() && said != certified) {
    warn_once("speaks for node " + one_line(said) + ", and came from node " + certified);
    return std::nullopt;
  }
  const std::string& from = message.value().from_address;
  if (!has_dialled(link) && (accepted_.contains(from) || accepted_.size() < limits::kMaxNodes)) {
    // A node has one link: whoever says the same over many does not keep them all.
    LinkId& accepted = accepted_[from];
    if (accepted != link && accepted != 0 && bound_.erase(accepted) > 0) {
      control_plane_.unbind(accepted, job_);
    }
    accepted = link;
    if (bound_.insert(link).second) control_plane_.bind(link, job_);
  }
  return std::move(message).value();
}

void GenerationLinks::warn_once(const std::string& what) {
  if (std::exchange(has_warned_, true)) return;
  spdlog::warn(
      "job {}: dropped a message about its next generation that {}; further ones are dropped "
      "silently",
      job_, what);
}

std::string GenerationLinks::lose(LinkId link) {
  bound_.erase(link);
  std::erase_if(accepted_, [&](const auto& entry) { return entry.second == link; });
  const auto it = std::find_if(dialled_.begin(), dialled_.end(),
                               [&](const auto& entry) { return entry.second.link == link; });
  return it == dialled_.end() ? std::string() : it->first;
}

std::vector<std::string> GenerationLinks::unreachable() const {
  std::vector<std::string> out;
  for (const auto& [address, dialled] : dialled_) {
    if (accepted_.contains(address) || control_plane_.trouble(dialled.link).empty()) continue;
    out.push_back(address);
  }
  return out;
}

void GenerationLinks::release_unused(TicksMs since) {
  std::erase_if(dialled_, [&](const auto& entry) {
    if (entry.second.used >= since) return false;
    control_plane_.release(entry.second.link);
    return true;
  });
}

}  // namespace rueda::engine
