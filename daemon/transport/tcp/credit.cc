#include "daemon/transport/tcp/credit.h"

#include <algorithm>

namespace rueda::transport::tcp {

void append_credits(std::span<const Credit> credits, Sealer* sealer, std::vector<std::byte>& out) {
  const auto append = [&out](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  if (sealer == nullptr) return append(std::as_bytes(credits));
  while (!credits.empty()) {
    const auto batch = credits.first(std::min<size_t>(credits.size(), kMaxBatchedCredits));
    credits = credits.subspan(batch.size());
    Credit head;
    head.kind = FrameKind::kCredits;
    head.slot = static_cast<uint32_t>(batch.size());
    const std::array<std::span<const std::byte>, 2> parts = {std::as_bytes(std::span(&head, 1)),
                                                             std::as_bytes(batch)};
    const size_t begin = out.size();
    out.resize(begin + sizeof(head) + batch.size_bytes() + kTagBytes);
    sealer->seal(parts, out.data() + begin);
  }
}

Result<CreditBatch> take_credits(std::span<std::byte> bytes, Opener* opener) {
  if (opener == nullptr) {
    const size_t whole = bytes.size() / sizeof(Credit) * sizeof(Credit);
    return CreditBatch{whole, bytes.first(whole)};
  }
  Credit head;
  if (bytes.size() < sizeof(head)) return CreditBatch{};
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != kFrameMagic || head.version != kWireVersion ||
      head.kind != FrameKind::kCredits || head.slot == 0 || head.slot > kMaxBatchedCredits) {
    return Status(Code::kInternal, "garbage where credits belong");
  }
  const size_t block = (1 + size_t{head.slot}) * sizeof(Credit);
  if (bytes.size() < block + kTagBytes) return CreditBatch{};
  if (!opener->open(bytes.first(block), bytes.subspan(block).first<kTagBytes>())) {
    return Status(Code::kInternal, "credits that were changed on their way");
  }
  return CreditBatch{block + kTagBytes, bytes.first(block).subspan(sizeof(head))};
}

}  // namespace rueda::transport::tcp
