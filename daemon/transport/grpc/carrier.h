// What a wire of gRPC hands to the channel that it becomes.
#pragma once

#include <memory>
#include <optional>

#include <grpcpp/grpcpp.h>

#include "daemon/base/fd.h"
#include "daemon/transport/grpc/stream_link.h"

namespace rueda::transport::grpc_data {

struct Carrier {
  std::shared_ptr<StreamLink> link;
  UniqueFd socket;                          // Of an accepted connection, by which it can be ended.
  bool is_over = false;                     // The stream has ended already.
  std::optional<grpc::ByteBuffer> arrived;  // A message that has come already.
};

}  // namespace rueda::transport::grpc_data
