// Makes one channel of several streams of another transport, because one TCP stream is bounded by
// its window and by the one core that receives it.
//
// A frame goes over the first stream that has little under way, or else over the stream that has
// the least: small frames stay together, large frames spread, and a slow stream gets less. The
// credit of a slot comes back over the same stream, so each stream keeps the contract of its
// transport. Frames of different slots may overtake each other. When the writer has closed, the
// reader goes on until all streams have ended.
#pragma once

#include <cstdint>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "daemon/transport/transport.h"

namespace rueda::transport {

inline constexpr uint32_t kMaxStreams = 16;

// Opens every channel of stream 0 as the streams 0 to `streams` - 1, of which there may be
// kMaxStreams; a channel with another stream in its id is opened as that one stream. If `streams`
// is 1, the function returns `inner`. `io` must be the context that `inner` was made with.
std::unique_ptr<Transport> make_striped_transport(boost::asio::io_context& io,
                                                  std::unique_ptr<Transport> inner,
                                                  uint32_t streams);

}  // namespace rueda::transport
