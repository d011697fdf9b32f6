// The reading end of a channel on an authenticated connection.
#pragma once

#include <memory>
#include <string>

#include "daemon/transport/seal.h"
#include "daemon/transport/tcp/asio_types.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::tcp {

// Takes the socket over. `peer` names the other end in errors, and `keys` protect what goes over
// it. The caller has checked the slots.
std::unique_ptr<ReceiveChannel> make_receive_channel(Socket socket, const AcceptOptions& options,
                                                     std::string peer,
                                                     const ChannelKeys& keys = {});

}  // namespace rueda::transport::tcp
