// One channel over several streams of another transport: one TCP stream is bounded by its window
// and by the one core that receives it.
//
// A frame goes over the first stream that has little under way, else over that with the least:
// small frames stay together, large ones spread, and a slow stream gets less. Its slot's credit
// comes back the same way, so each stream keeps the contract of its transport. Frames of different
// slots may overtake each other. When the writer has closed, the reader goes on until all streams
// have ended.
#pragma once

#include <cstdint>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/transport.h"

namespace rueda::transport {

inline constexpr uint32_t kMaxStreams = 16;

// Opens every channel of stream 0 as streams 0 to `streams` - 1 (kMaxStreams at most); one with
// another stream in its id is that stream alone. With 1 it is `inner` itself. `io` is the one that
// `inner` was made with.
std::unique_ptr<Transport> make_striped_transport(boost::asio::io_context& io,
                                                  std::unique_ptr<Transport> inner,
                                                  uint32_t streams);

}  // namespace rueda::transport
