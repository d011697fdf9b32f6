// The reading end of a channel over gRPC, which is the server of the stream.
#pragma once

#include <memory>
#include <string>

#include "daemon/transport/grpc/carrier.h"
#include "daemon/transport/seal.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::grpc_data {

class GrpcWires;

std::unique_ptr<ReceiveChannel> make_receive_channel(Carrier carrier,
                                                     std::shared_ptr<GrpcWires> wires,
                                                     const AcceptOptions& options, std::string peer,
                                                     const ChannelKeys& keys);

}  // namespace rueda::transport::grpc_data
