#include "daemon/engine/operation/input_check.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/mutex.h"
#include "daemon/reduce/kernels.h"

namespace rueda::engine {
namespace {

// The sign, the exponent and the highest bits of the mantissa are in the last bytes.
template <class Bits>
NonfiniteKind kind_of_bits(const std::byte* element, Bits exponent) {
  Bits bits;
  std::memcpy(&bits, element, sizeof(bits));
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if ((bits & static_cast<Bits>(~sign)) != exponent) return NonfiniteKind::kNaN;
  return (bits & sign) != 0 ? NonfiniteKind::kMinusInfinity : NonfiniteKind::kInfinity;
}

}  // namespace

InputCheck::InputCheck(DType dtype, std::vector<Contribution> contributions)
    : dtype_(dtype), contributions_(std::move(contributions)), found_(contributions_.size()) {
  std::sort(contributions_.begin(), contributions_.end(),
            [](const Contribution& a, const Contribution& b) { return a.begin < b.begin; });
}

void InputCheck::look(const std::byte* values, size_t bytes) {
  const size_t size = element_bytes(dtype_);
  const std::byte* const end = values + bytes;
  while (values < end) {
    values +=
        size * reduce::find_nonfinite(dtype_, values, static_cast<size_t>(end - values) / size);
    if (values >= end) return;
    values = note(values);  // Whatever else is wrong with a contribution does not matter.
  }
}

const std::byte* InputCheck::note(const std::byte* element) {
  const MutexLock lock(mutex_);
  const auto behind = std::upper_bound(
      contributions_.begin(), contributions_.end(), element,
      [](const std::byte* at, const Contribution& other) { return at < other.begin; });
  const std::byte* end = element + element_bytes(dtype_);
  // The same memory may have been given under several names.
  for (auto it = behind; it != contributions_.begin();) {
    --it;
    if (it->begin != std::prev(behind)->begin) break;
    if (element >= it->begin + it->bytes) continue;
    const auto at = static_cast<uint64_t>(element - it->begin) / element_bytes(dtype_);
    std::optional<Found>& found = found_[static_cast<size_t>(it - contributions_.begin())];
    if (!found || at < found->element) found = Found{at, kind_of(element)};
    end = it->begin + it->bytes;
  }
  return end;
}

// Of a complex number, the first component that is not finite counts.
NonfiniteKind InputCheck::kind_of(const std::byte* element) const {
  const DType component = component_dtype(dtype_);
  element += element_bytes(component) *
             reduce::find_nonfinite(component, element, components_of(dtype_) - 1);
  switch (component) {
    case DType::kFloat16: return kind_of_bits<uint16_t>(element, 0x7c00);
    case DType::kBFloat16: return kind_of_bits<uint16_t>(element, 0x7f80);
    case DType::kFloat64: return kind_of_bits<uint64_t>(element, 0x7ff0000000000000);
    default: return kind_of_bits<uint32_t>(element, 0x7f800000);
  }
}

size_t InputCheck::found() const {
  const MutexLock lock(mutex_);
  return static_cast<size_t>(std::count_if(found_.begin(), found_.end(),
                                           [](const auto& found) { return found.has_value(); }));
}

std::optional<Nonfinite> InputCheck::first() const {
  const MutexLock lock(mutex_);
  std::optional<Nonfinite> first;
  for (size_t i = 0; i < found_.size(); ++i) {
    if (!found_[i]) continue;
    const Contribution& from = contributions_[i];
    Nonfinite value{from.step,       from.rank,         from.submission,         found_[i]->element,
                    found_[i]->kind, from.tensor->name, from.tensor->process_set};
    if (!first || comes_before(value, *first)) first = std::move(value);
  }
  return first;
}

}  // namespace rueda::engine
