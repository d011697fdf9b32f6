#include "daemon/service/convert/convert_communicator.h"

#include <cstring>

namespace rueda::service {

v1::CommunicatorMessage to_proto(const engine::CommunicatorMessage& message) {
  v1::CommunicatorMessage to;
  to.set_job_id(message.job);
  to.set_process_set(message.process_set);
  to.set_id(message.id.data(), message.id.size());
  return to;
}

Result<engine::CommunicatorMessage> from_proto(const v1::CommunicatorMessage& message) {
  engine::CommunicatorMessage to{message.job_id(), message.process_set()};
  if (message.id().size() != to.id.size()) {
    return Status(Code::kInvalidArgument, "the id of a communicator has " +
                                              std::to_string(message.id().size()) + " bytes, not " +
                                              std::to_string(to.id.size()));
  }
  std::memcpy(to.id.data(), message.id().data(), to.id.size());
  return to;
}

}  // namespace rueda::service
