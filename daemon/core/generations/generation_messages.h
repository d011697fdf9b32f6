// The messages by which the nodes of an elastic job agree on its next generation (generations.h).
// They are plain structs, as in messages.h.
#pragma once

#include <string>
#include <variant>

#include "daemon/base/status.h"
#include "daemon/core/generations/generation.h"
#include "daemon/core/messages/recovery_messages.h"
#include "daemon/core/model/settings.h"

namespace rueda::core {

// "I am here, and this is what I have." A node says it again and again to the node that it takes
// for the one who proposes, until a generation has begun in which it has nothing to wait for.
struct Present {
  // Counts what the sender has said in this way: an offer that comes after a newer one is old.
  uint64_t number = 0;
  NodeOffer offer;
  // The sender was a member of the generation that it knows, and that one is over.
  bool forms = false;
  int awaited = 0;        // Processes that were in it, live, and are not attached again yet.
  std::string reason;     // Why it is over, as far as the sender knows; for people.
  bool finished = false;  // Some process of the job has ended well: newcomers come too late.
  Settings settings{};    // They must be those of the job, or the node is not taken in.
};
// Answers Present: "I have heard you." Whoever does not hear it goes to another node.
struct Heard {
  // The control address of the node that the sender takes for the one who proposes, which may be
  // the sender; empty if it knows none.
  std::string leader;
  bool finished = false;  // As in Present.
  std::string refusal{};  // Why the node that is answered cannot take part; empty if it can.
};

// Paxos for one value (ballots.h) among the members of the generation that is over.
struct PrepareGeneration {
  Ballot ballot;
};
// A voter has nothing to say beside its promise.
struct NoReport {};
using PromiseGeneration = BallotPromise<GenerationPtr, NoReport>;
struct AcceptGeneration {
  Ballot ballot;
  GenerationPtr generation;
};
struct AcceptedGeneration {
  Ballot ballot;
};
struct RefuseGeneration {
  Ballot promised;
};
// Tells which generation is the newest that the sender knows.
struct LearnGeneration {
  GenerationPtr generation;
};

// Somebody has ended the job: no generation follows, whatever else is known. Who hears it tells
// all others, and answers with the same.
struct EndGenerations {
  Status why;
  bool is_answer = false;
};

struct GenerationMessage {
  MemberId from;
  std::string from_address;  // Where the sender can be reached: "host:port".
  Epoch epoch;  // The epoch that the sender wants to form: one more than that which it knows.
  std::variant<Present, Heard, PrepareGeneration, PromiseGeneration, AcceptGeneration,
               AcceptedGeneration, RefuseGeneration, LearnGeneration, EndGenerations>
      body;
};

}  // namespace rueda::core
