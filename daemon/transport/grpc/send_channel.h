// The writing end of a channel over gRPC, which is the client of the stream.
#pragma once

#include <memory>
#include <string>

#include "daemon/transport/grpc/carrier.h"
#include "daemon/transport/region_table.h"
#include "daemon/transport/seal.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::grpc_data {

class GrpcWires;

std::unique_ptr<SendChannel> make_send_channel(Carrier carrier, std::shared_ptr<GrpcWires> wires,
                                               const ConnectOptions& options,
                                               std::shared_ptr<const RegionTable> regions,
                                               std::string peer, const ChannelKeys& keys);

}  // namespace rueda::transport::grpc_data
