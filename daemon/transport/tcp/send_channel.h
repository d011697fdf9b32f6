// The writing end of a channel on an authenticated connection.
#pragma once

#include <memory>
#include <string>

#include "daemon/transport/region_table.h"
#include "daemon/transport/seal.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

// Takes the socket over. `peer` names the other end in errors, and `keys` protect what goes over
// it. The caller has checked the geometry.
std::unique_ptr<SendChannel> make_send_channel(Socket socket, const ConnectOptions& options,
                                               std::shared_ptr<const RegionTable> regions,
                                               std::string peer, const ChannelKeys& keys = {});

}  // namespace rueda::transport::tcp
