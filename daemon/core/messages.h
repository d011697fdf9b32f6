// What the cores of a job's nodes say to each other. Plain structs: service/ turns them into
// protobuf.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/core/coordination.h"
#include "daemon/core/descriptor.h"

namespace rueda::core {

using DescriptorPtr = std::shared_ptr<const TensorDescriptor>;

// A tensor that every local rank of a node has submitted.
struct ReadyTensor {
  DescriptorPtr descriptor;  // of `rank`
  Rank rank;                 // the node's lowest rank
  std::string mismatch;      // not empty: the node's own ranks disagree, in these words
};

// "Batch B is operation number s": docs/protocol.md's decree.
struct OrderedOperation {
  Seq seq;
  uint64_t plan_hash = 0;            // over the batch's descriptors; 0 with an error
  std::vector<std::string> tensors;  // names, in the order of the batch
  Status error;                      // not ok: nothing is launched, the tensors fail with it
};

// Member to coordinator: which of my ranks are attached. Sent again until Start arrives.
struct Join {
  uint64_t layout_hash = 0;
  std::string data_address;  // "host:port" of the data plane
  std::vector<Rank> attached;
  // What all nodes must have been told alike (AgreementOptions).
  Coordination coordination = kDefaultCoordination;
  size_t cache_capacity = 0;
};

// Coordinator to members: every rank is there; the epoch begins.
struct Start {
  std::vector<std::string> data_addresses;  // by node index
};

struct Ready {
  std::vector<ReadyTensor> entries;
};

struct Decree {
  std::vector<OrderedOperation> operations;
};

// Member to coordinator: a rank said goodbye. Coordinator to members: from this place in the order
// on, no operation can have it.
struct Leave {
  Rank rank;
};
struct Left {
  Rank rank;
};

// The epoch is over, for this reason. Either way.
struct Fail {
  Status status;
};

struct Message {
  NodeIndex from;
  Epoch epoch;
  // Counts the messages from one node to another within an epoch, from 1. A repeated number is
  // dropped, a gap ends the epoch. 0: outside the count (Join, Start: idempotent).
  uint64_t number = 0;
  std::variant<Join, Start, Ready, Decree, Leave, Left, Fail> body;
};

}  // namespace rueda::core
