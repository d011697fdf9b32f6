// A channel inside one process: two ends, each on its own loop, with a mutex between them.
#pragma once

#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/region_table.h"
#include "daemon/transport/transport.h"

namespace rueda::transport::mem {

// Makes both ends at once; each may then be moved to the thread of its loop. A writer copies
// payloads into the reader's slots itself, as an RDMA adapter would.
std::pair<std::unique_ptr<SendChannel>, std::unique_ptr<ReceiveChannel>> make_pipe(
    boost::asio::io_context& writer_io, const ConnectOptions& connect,
    std::shared_ptr<const RegionTable> writer_regions, boost::asio::io_context& reader_io,
    const AcceptOptions& accept);

}  // namespace rueda::transport::mem
