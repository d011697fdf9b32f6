// Tests random sequences of operations, launched and delivered in random turns. A seed determines a
// run.
#include <random>

#include <gtest/gtest.h>

#include "tests/engine/ring.h"
#include "tests/support/scale.h"

namespace rueda::engine {
namespace {

using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(engine_); }
  bool one_in(int bound) { return below(bound) == 0; }

 private:
  std::mt19937 engine_;
};

RingOptions random_ring(Random& random) {
  RingOptions options;
  options.ranks_per_node.resize(static_cast<size_t>(1 + random.below(5)));
  for (int& ranks : options.ranks_per_node) ranks = 1 + random.below(3);
  options.lanes = 1 + random.below(4);
  options.chunk_bytes = random.one_in(3) ? 8192 : 4096;
  if (random.one_in(2)) options.widest_chunk_bytes = 16'384;
  options.algorithm = static_cast<core::AlgorithmChoice>(random.below(7));
  if (random.one_in(2)) {
    options.policy = core::DeathPolicy::kShrink;
    if (random.one_in(2)) options.staging_bytes = static_cast<uint64_t>(random.below(100'000));
  }
  return options;
}

WireDType random_wire(Random& random, const OperationSpec& spec) {
  if (!can_be_rounded(spec.kind, spec.dtype)) return WireDType::kSame;
  return static_cast<WireDType>(random.below(kWireDTypeCount));
}

// Returns an operation in which one rank, or each, has a part to itself.
OperationSpec random_parts(Random& random, int ranks) {
  constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllgather,     CollectiveKind::kReduce,
                                       CollectiveKind::kReduceScatter, CollectiveKind::kAlltoall,
                                       CollectiveKind::kGather,        CollectiveKind::kScatter};
  OperationSpec spec;
  spec.kind = kKinds[random.below(6)];
  spec.dtype = static_cast<DType>(random.below(kDTypeCount));
  spec.op = static_cast<ReduceOp>(random.below(kElementwiseOpCount));
  if (!has_operator(spec.dtype, spec.op)) spec.op = ReduceOp::kSum;
  spec.wire_dtype = random_wire(random, spec);
  spec.root = Rank{random.below(ranks)};
  const bool is_exchange = spec.kind == CollectiveKind::kAlltoall;
  const int parts = is_exchange ? ranks * ranks : ranks;
  const int most = random.one_in(3) ? 8000 / ranks : 40;
  if (spec.kind == CollectiveKind::kReduce || random.one_in(2)) {
    spec.sizes = {random.below(most) * (is_exchange ? parts : 1)};
    return spec;
  }
  spec.sizes = {0};
  for (int i = 0; i < parts; ++i) {
    spec.counts.push_back(random.one_in(4) ? 0 : random.below(most));
    spec.sizes.front() += spec.counts.back();
  }
  return spec;
}

OperationSpec random_work(Random& random, int ranks, bool has_parts) {
  if (has_parts && random.one_in(2)) return random_parts(random, ranks);
  OperationSpec spec;
  spec.dtype = static_cast<DType>(random.below(kDTypeCount));
  spec.op = static_cast<ReduceOp>(random.below(kElementwiseOpCount));
  if (!has_operator(spec.dtype, spec.op)) spec.op = ReduceOp::kSum;
  spec.in_place = random.one_in(2);
  switch (random.below(4)) {
    case 0:
      spec.kind = CollectiveKind::kBroadcast;
      spec.root = Rank{random.below(ranks)};
      break;
    case 1:
      if (random.one_in(2)) {
        spec.kind = CollectiveKind::kBarrier;
        spec.sizes = {0};
        return spec;
      }
      break;
    default: break;
  }
  if (!has_root(spec.kind) && random.one_in(2)) {
    spec.tuning = {4096u << random.below(4), 0,
                   random.one_in(3) ? core::kRingAlways : random.below(7) - 3};
  }
  spec.wire_dtype = random_wire(random, spec);
  spec.sizes.clear();
  for (int tensors = 1 + random.below(4); tensors > 0; --tensors) {
    spec.sizes.push_back(random.one_in(4) ? 0 : 1 + random.below(random.one_in(3) ? 30'000 : 50));
  }
  return spec;
}

std::string check_holds(Ring& ring, int64_t most) {
  for (int i = 0; i < ring.size(); ++i) {
    const int64_t bytes = ring.node(i).job->unstable_bytes(core::Track::kLockable);
    if (bytes > most) return "node " + std::to_string(i) + " holds " + std::to_string(bytes);
  }
  return {};
}

std::string run_seed(uint32_t seed) {
  Random random(seed);
  const RingOptions options = random_ring(random);
  int ranks = 0;
  for (const int k : options.ranks_per_node) ranks += k;
  Ring ring(options);
  for (int i = 1 + random.below(16); i > 0; --i) {
    ring.add(random_work(random, ranks, options.policy == core::DeathPolicy::kFail));
  }
  // One node is slow now and then: it launches when the others cannot go on without it.
  const int slow = random.one_in(2) ? random.below(ring.size()) : -1;
  while (!ring.all_done()) {
    bool moved = false;
    for (int turns = random.below(20); turns > 0; --turns) moved |= ring.poll();
    const int node = random.below(ring.size());
    if (node != slow || random.one_in(16)) moved |= ring.launch_next(node);
    if (std::string wrong = check_holds(ring, ring.max_unstable_bytes()); !wrong.empty()) {
      return wrong;
    }
    if (moved) continue;
    for (int i = 0; i < ring.size(); ++i) moved |= ring.launch_next(i);
    if (!moved && !ring.poll()) return ring.all_done() ? ring.check() : "it stands still";
  }
  ring.settle();
  // Rule R2: when traffic has stopped everything becomes stable.
  if (std::string wrong = check_holds(ring, 0); !wrong.empty()) return wrong;
  return ring.check();
}

TEST(DataJobRandom, AnySequenceInAnyTurnsGivesTheRightValues) {
  const uint64_t seeds = testing_support::scaled(400, 50);
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const std::string wrong = run_seed(seed);
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace rueda::engine
