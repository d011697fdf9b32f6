// Builds what the data loop carries out, from what the core launches.
#pragma once

#include <functional>
#include <memory>

#include "daemon/core/job/job_events.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine {

// The buffers of one local rank's submission. The arenas are mapped by whoever asks.
struct SubmittedBuffers {
  std::byte* input = nullptr;             // Null if the rank gives nothing.
  std::byte* output = nullptr;            // Null if the rank gets nothing.
  session::Arena* input_arena = nullptr;  // Null if there are no bytes.
  session::Arena* output_arena = nullptr;
  SendPriority urgency;
  // The bytes that lie there, as many as the submission's own descriptor asked for. No operation
  // may go further.
  size_t input_bytes = 0;
  size_t output_bytes = 0;
};
// Finds the submission of one of the node's ranks in the process set, by the rank's place among
// them. The submission must be known.
using FindSubmission = std::function<const SubmittedBuffers&(LocalRank, Ticket)>;

// Builds the operation. Tensors that follow each other in the memory of every local rank become
// one. `layout` is the process set's, `self` this node in it. The error says that the operation
// would go past the end of what a rank has submitted, or has no place for something: no batch that
// ranks agreed on does so, and the core looks at those that were decreed; this is the last look
// before memory is touched.
Result<std::unique_ptr<Operation>> build_operation(const core::Launch& launch,
                                                   const core::Layout& layout, NodeIndex self,
                                                   const FindSubmission& find);

}  // namespace rueda::engine
