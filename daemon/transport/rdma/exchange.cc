#include "daemon/transport/rdma/exchange.h"

#include <algorithm>
#include <cstring>

#include "daemon/base/one_line.h"

namespace rueda::transport::rdma {

uint32_t rail_number(const ChannelId& id) {
  return id.stream + static_cast<uint32_t>(id.from_node) + static_cast<uint32_t>(id.to_node) +
         id.process_set;
}

void set_reason(Offer& offer, const std::string& reason) {
  const size_t bytes = std::min(reason.size(), offer.reason.size() - 1);
  std::memcpy(offer.reason.data(), reason.data(), bytes);
}

std::string reason_of(const Offer& offer) {
  const auto end = std::find(offer.reason.begin(), offer.reason.end(), '\0');
  return one_line(std::string(offer.reason.begin(), end), offer.reason.size());
}

bool is_valid(const Offer& offer) {
  return offer.magic == kOfferMagic && offer.version == kExchangeVersion;
}

}  // namespace rueda::transport::rdma
