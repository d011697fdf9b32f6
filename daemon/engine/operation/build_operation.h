// From what the core launches to what the data loop carries out.
#pragma once

#include <functional>
#include <memory>

#include "daemon/core/job/job_events.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine {

// Of one local rank's submission. The arenas are mapped by whoever asks.
struct SubmittedBuffers {
  std::byte* input = nullptr;             // null: it gives nothing
  std::byte* output = nullptr;            // null: it gets nothing
  session::Arena* input_arena = nullptr;  // null: no bytes
  session::Arena* output_arena = nullptr;
  SendPriority urgency;
  // What lies there: as long as its own descriptor asked for. No operation may go further.
  size_t input_bytes = 0;
  size_t output_bytes = 0;
};
// Of one of the node's ranks in the process set, by its place among them. Must be known.
using FindSubmission = std::function<const SubmittedBuffers&(LocalRank, Ticket)>;

// Tensors that follow each other in the memory of every local rank become one. `layout` is the
// process set's, `self` this node in it. The error says that the operation would go past the end of
// what a rank has submitted, or has no place for something: no batch that ranks agreed on does, and
// the core looks at those that were decreed; this is the last look before memory is touched.
Result<std::unique_ptr<Operation>> build_operation(const core::Launch& launch,
                                                   const core::Layout& layout, NodeIndex self,
                                                   const FindSubmission& find);

}  // namespace rueda::engine
