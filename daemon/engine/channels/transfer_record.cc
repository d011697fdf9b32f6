#include "daemon/engine/channels/transfer_record.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "daemon/base/one_line.h"

namespace rueda::engine {
namespace {

enum class Kind : uint8_t { kOffer = 1, kTake = 2, kRefusal = 3, kWithdrawal = 4 };

struct Head {
  uint8_t kind = 0;
  uint8_t dtype = 0;    // Of an offer.
  uint8_t carried = 0;  // Of an offer or a take.
  uint8_t code = 0;     // Of a refusal.
  uint32_t process_set = 0;
  uint64_t number = 0;
};
static_assert(sizeof(Head) == 16);

// Of an offer, and of a withdrawal, which has no elements.
struct OfferTail {
  int32_t source = 0;
  int32_t destination = 0;
  int64_t tag = 0;
  int64_t elements = 0;
};
static_assert(sizeof(OfferTail) == 24);

constexpr size_t kMostText = kMostRecordBytes - sizeof(Head);

Status broken(const std::string& what) {
  return {Code::kInternal, "it sent a message about transfers with " + what};
}

}  // namespace

size_t write_record(uint32_t process_set, const core::TransferMessage& message, std::byte* to) {
  Head head;
  head.process_set = process_set;
  size_t tail_bytes = 0;
  if (const auto* offer = std::get_if<core::TransferOffer>(&message)) {
    head.kind = static_cast<uint8_t>(Kind::kOffer);
    head.dtype = static_cast<uint8_t>(offer->dtype);
    head.carried = offer->carried ? 1 : 0;
    head.number = offer->number;
    const OfferTail tail{offer->source.value, offer->destination.value, offer->tag,
                         offer->elements};
    std::memcpy(to + sizeof(head), &tail, sizeof(tail));
    tail_bytes = sizeof(tail);
  } else if (const auto* take = std::get_if<core::TransferTake>(&message)) {
    head.kind = static_cast<uint8_t>(Kind::kTake);
    head.carried = take->carried ? 1 : 0;
    head.number = take->number;
  } else if (const auto* withdrawn = std::get_if<core::TransferWithdrawal>(&message)) {
    head.kind = static_cast<uint8_t>(Kind::kWithdrawal);
    head.number = withdrawn->number;
    const OfferTail tail{withdrawn->source.value, withdrawn->destination.value, withdrawn->tag, 0};
    std::memcpy(to + sizeof(head), &tail, sizeof(tail));
    tail_bytes = sizeof(tail);
  } else {
    const auto& refusal = std::get<core::TransferRefusal>(message);
    head.kind = static_cast<uint8_t>(Kind::kRefusal);
    head.code = static_cast<uint8_t>(refusal.status.code());
    head.number = refusal.number;
    const std::string text = one_line(refusal.status.message(), kMostText);
    std::memcpy(to + sizeof(head), text.data(), text.size());
    tail_bytes = text.size();
  }
  std::memcpy(to, &head, sizeof(head));
  return sizeof(head) + tail_bytes;
}

Result<TransferRecord> read_record(std::span<const std::byte> from) {
  Head head;
  if (from.size() < sizeof(head)) return broken(std::to_string(from.size()) + " bytes");
  std::memcpy(&head, from.data(), sizeof(head));
  const std::span<const std::byte> rest = from.subspan(sizeof(head));
  const bool carried = head.carried == 1;
  if (head.carried > 1) return broken("a mark that is neither 0 nor 1");
  TransferRecord record;
  record.process_set = head.process_set;
  switch (static_cast<Kind>(head.kind)) {
    case Kind::kOffer: {
      OfferTail tail;
      if (rest.size() < sizeof(tail)) return broken("an offer that is cut off");
      if (head.dtype >= kDTypeCount) return broken("an unknown dtype");
      std::memcpy(&tail, rest.data(), sizeof(tail));
      record.data = rest.subspan(sizeof(tail));
      const auto dtype = static_cast<DType>(head.dtype);
      const int64_t most = kMostCarriedBytes / static_cast<int64_t>(element_bytes(dtype));
      const bool fits = carried ? tail.elements >= 0 && tail.elements <= most &&
                                      record.data.size() ==
                                          static_cast<size_t>(tail.elements) * element_bytes(dtype)
                                : record.data.empty();
      if (!fits) {
        return broken(std::to_string(record.data.size()) + " bytes of data with an offer of " +
                      std::to_string(tail.elements) + " elements");
      }
      record.message = core::TransferOffer{
          head.number, Rank{tail.source}, Rank{tail.destination}, tail.tag, dtype, tail.elements,
          carried};
      return record;
    }
    case Kind::kTake:
      if (!rest.empty()) return broken("a take that is too long");
      record.message = core::TransferTake{head.number, carried};
      return record;
    case Kind::kWithdrawal: {
      OfferTail tail;
      if (rest.size() != sizeof(tail)) return broken("a withdrawal of another size");
      std::memcpy(&tail, rest.data(), sizeof(tail));
      record.message = core::TransferWithdrawal{head.number, Rank{tail.source},
                                                Rank{tail.destination}, tail.tag};
      return record;
    }
    case Kind::kRefusal: {
      if (head.code == 0 || head.code > static_cast<uint8_t>(Code::kInternal)) {
        return broken("a refusal without an error");
      }
      if (rest.size() > kMostText) return broken("a refusal that is too long");
      const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
      record.message = core::TransferRefusal{
          head.number, Status(static_cast<Code>(head.code), one_line(text, kMostText))};
      return record;
    }
  }
  return broken("the unknown kind " + std::to_string(head.kind));
}

}  // namespace rueda::engine
