// Looks for NaN and infinity in what the local ranks contribute to one operation, while it is being
// read. The loops that carry out parts and shares of the operation share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/dtype.h"
#include "daemon/base/mutex.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/engine/ports/nonfinite.h"

namespace rueda::engine {

class InputCheck {
 public:
  // The values that one rank gives of one tensor.
  struct Contribution {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    Rank rank;
    uint64_t step = 0;
    uint64_t submission = 0;
    std::shared_ptr<const core::TensorDescriptor> tensor;
  };

  static constexpr bool looks_at(CollectiveKind kind, DType dtype) {
    return reduces(kind) && !is_integer(dtype) && dtype != DType::kBool;
  }

  InputCheck(DType dtype, std::vector<Contribution> contributions);

  // Looks at a stretch of elements in the memory of some contributions. Thread-safe.
  void look(const std::byte* values, size_t bytes);

  // These may be called once the operation has ended. They return the number of contributions that
  // are not finite, and the one that comes before all others.
  size_t found() const;
  std::optional<Nonfinite> first() const;

 private:
  struct Found {
    uint64_t element;
    NonfiniteKind kind;
  };

  // Returns where the contributions that have this element end.
  const std::byte* note(const std::byte* element);
  NonfiniteKind kind_of(const std::byte* element) const;

  const DType dtype_;
  std::vector<Contribution> contributions_;  // They are ordered by address.
  mutable Mutex mutex_;
  // By contribution: its lowest element that is not finite.
  std::vector<std::optional<Found>> found_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::engine
