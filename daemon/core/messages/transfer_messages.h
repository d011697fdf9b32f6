// The messages by which the nodes of two ranks bring a send and its receive together
// (core/job/transfers.h). Each has a bounded size. TransferOpen is a message of the job's links;
// the others go over the channel that it announces, with the process set that they are about.
#pragma once

#include <cstdint>
#include <variant>

#include "daemon/base/dtype.h"
#include "daemon/base/ids.h"
#include "daemon/base/status.h"

namespace rueda::core {

// Tells a node, for the first transfer in the epoch, that the two nodes' channels for transfers are
// to be opened, one each way. Both nodes may send it, and it may come twice.
struct TransferOpen {};

// Tells the node of the destination, from the node of the source, that a rank has submitted a send.
struct TransferOffer {
  uint64_t number = 0;  // Counts the offers from this node to that one in the epoch, from 1.
  Rank source;
  Rank destination;
  int64_t tag = 0;
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  // The data plane decides this: the data came with the offer, and waits where it came.
  bool carried = false;
};

// Answers an offer: the receive is there, and its memory awaits the data, or has it already.
struct TransferTake {
  uint64_t number = 0;
  bool carried = false;  // As in the offer.
};

// Answers an offer: the send and its receive do not fit, or can no longer meet. The status is not
// ok, and both ranks are told of it.
struct TransferRefusal {
  uint64_t number = 0;
  Status status;
};

// Takes back an offer that may not have been answered: if it waits still, it is refused. Otherwise
// the answer is on its way, and this has no effect. The fields are the offer's.
struct TransferWithdrawal {
  uint64_t number = 0;
  Rank source;
  Rank destination;
  int64_t tag = 0;
};

using TransferMessage =
    std::variant<TransferOffer, TransferTake, TransferRefusal, TransferWithdrawal>;

}  // namespace rueda::core
