#include "daemon/engine/poster.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace rueda::engine {

void Poster::post(std::function<void()> work) const { boost::asio::post(loop_, std::move(work)); }

}  // namespace rueda::engine
