#include "daemon/engine/channels/acknowledgements.h"

#include <utility>

namespace rueda::engine {

void Acknowledgements::begin(core::Track track, const RetainedFinals& held) {
  bool& is_under_way = place(track).is_under_way;
  const uint32_t cookie = link_.acknowledgement_cookie(track);
  if (self_.value != 0 || is_under_way || link_.in_use(cookie)) return;
  if (held.complete() <= held.stable()) return;
  is_under_way = true;
  transport::FrameHeader header = link_.stamp().header(transport::FrameKind::kStable);
  header.slot = link_.geometry().acknowledgement_slot(track);
  header.chunk = 1;
  header.seq = held.complete().value;
  header.stable_seq = header.seq;
  link_.push_acknowledgement(cookie, header);
}

bool Acknowledgements::take(const transport::FrameHeader& header, const RetainedFinals* held) {
  const core::Track track = core::track_of(Seq{header.seq});
  const auto ring = static_cast<uint32_t>(nodes_);
  const bool is_right = held && header.slot == link_.geometry().acknowledgement_slot(track) &&
                        header.payload_bytes == 0 && header.chunk >= 1 &&
                        header.chunk <= 2 * ring - 2 &&
                        header.chunk % ring == static_cast<uint32_t>(self_.value) &&
                        (header.chunk < ring || header.seq <= held->complete().value);
  if (is_right) place(track).waiting = header;
  return is_right;
}

void Acknowledgements::pass(core::Track track, RetainedFinals& held) {
  std::optional<transport::FrameHeader>& waiting = place(track).waiting;
  if (!waiting || held.complete().value < waiting->seq) return;
  transport::FrameHeader header = *std::exchange(waiting, std::nullopt);
  const auto ring = static_cast<uint32_t>(nodes_);
  if (header.chunk >= ring - 1) held.note_stable(Seq{header.seq});
  if (header.chunk == ring) place(track).is_under_way = false;
  if (header.chunk == 2 * ring - 2) return link_.release(header.slot);
  ++header.chunk;
  link_.push_acknowledgement(header.slot, header);
}

}  // namespace rueda::engine
