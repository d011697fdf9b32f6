#include "daemon/gpu/batch.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rueda::gpu {
namespace {

// Holds a right batch of two segments, which tests spoil.
struct Fixture {
  std::vector<DeviceAddress> sources{4096, 8192};
  std::vector<DeviceAddress> destinations{4096, 16384, 32768};
  std::vector<Segment> segments;
  Batch batch;

  Fixture() {
    segments.assign(2, {.count = 10, .sources = sources, .destinations = destinations});
    batch.segments = segments;
  }
};

TEST(CheckBatch, AcceptsWhatIsRight) {
  EXPECT_TRUE(check_batch({}).is_ok());
  Fixture plain;
  EXPECT_TRUE(check_batch(plain.batch).is_ok());
  Fixture received;
  for (Segment& segment : received.segments) segment.partial = 1024;
  received.batch.partial_dtype = DType::kBFloat16;
  EXPECT_TRUE(check_batch(received.batch).is_ok());
  received.batch.dst_dtype = DType::kBFloat16;
  EXPECT_TRUE(check_batch(received.batch).is_ok());
  for (Segment& segment : received.segments) segment.sources = {};
  EXPECT_TRUE(check_batch(received.batch).is_ok());
}

TEST(CheckBatch, SaysWhatIsWrong) {
  struct Case {
    std::function<void(Fixture&)> spoil;
    std::string words;
  };
  const Case cases[] = {
      {[](Fixture& f) { f.segments[1].count = 0; }, "segment 1 is empty"},
      {[](Fixture& f) { f.segments[1].sources = {}; }, "segment 1 has other sources"},
      {[](Fixture& f) { f.segments[1].partial = 1024; }, "segment 1 has other sources"},
      {[](Fixture& f) { f.segments[0].sources = f.segments[1].sources = {}; }, "no sources"},
      {[](Fixture& f) { f.segments[0].destinations = f.segments[1].destinations = {}; },
       "no destinations"},
      {[](Fixture& f) { f.sources[1] = 0; }, "segment 0 has an address"},
      {[](Fixture& f) { f.sources[1] += 2; }, "segment 0 has an address"},
      {[](Fixture& f) { f.destinations[2] += 1; }, "segment 0 has an address"},
      {[](Fixture& f) { f.destinations[2] = UINT64_MAX - 7; }, "segment 0 has an address"},
      {[](Fixture& f) { f.segments[1].count = UINT64_MAX; }, "segment 1 has an address"},
      {[](Fixture& f) { f.batch.divisor = 0; }, "divisor is 0"},
      {[](Fixture& f) { f.batch.op = ReduceOp::kAdasum; }, "element by element"},
      {[](Fixture& f) { f.batch.dtype = DType{99}; }, "does not exist"},
      {[](Fixture& f) { f.batch.dtype = DType{kDTypeCount}; }, "does not exist"},
      {[](Fixture& f) {
         f.batch.dtype = DType::kComplex64;
         f.batch.op = ReduceOp::kMin;
       },
       "complex64 has no min"},
      {[](Fixture& f) {
         f.batch.dtype = DType::kComplex128;
         f.batch.op = ReduceOp::kMax;
       },
       "complex128 has no max"},
      {[](Fixture& f) {
         f.batch.dtype = DType::kComplex64;
         f.batch.dst_dtype = DType::kFloat16;
       },
       "complex64 does not travel as"},
      {[](Fixture& f) { f.batch.dst_dtype = DType::kFloat64; }, "float32 does not travel as"},
      {[](Fixture& f) { f.batch.partial_dtype = DType::kInt8; }, "float32 does not travel as"},
      {[](Fixture& f) {
         f.batch.dtype = DType::kFloat64;
         f.batch.dst_dtype = DType::kFloat16;
       },
       "float64 does not travel as"},
      {[](Fixture& f) {
         for (Segment& segment : f.segments) segment.partial = 1024;
         f.batch.dst_dtype = DType::kFloat16;
       },
       "different types"},
      {[](Fixture& f) {
         f.batch.dtype = DType::kBool;
         f.batch.op = ReduceOp::kAverage;
       },
       "bool has neither"},
      {[](Fixture& f) {
         f.batch.dtype = DType::kBool;
         f.batch.prescale = 2;
       },
       "bool has neither"},
  };
  for (const Case& c : cases) {
    Fixture fixture;
    c.spoil(fixture);
    const Status status = check_batch(fixture.batch);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.words;
    EXPECT_NE(status.message().find(c.words), std::string::npos)
        << status.message() << " lacks: " << c.words;
  }
}

TEST(CheckBatch, HasBounds) {
  Fixture fixture;
  fixture.sources.assign(kMaxSources, 4096);
  for (Segment& segment : fixture.segments) segment.sources = fixture.sources;
  EXPECT_TRUE(check_batch(fixture.batch).is_ok());
  fixture.sources.push_back(4096);
  for (Segment& segment : fixture.segments) segment.sources = fixture.sources;
  EXPECT_EQ(check_batch(fixture.batch).code(), Code::kInvalidArgument);

  // The batch has nine words a segment.
  Fixture many;
  constexpr size_t kMost = kMaxTableBytes / (9 * sizeof(uint64_t));
  many.segments.resize(kMost, many.segments[0]);
  many.batch.segments = many.segments;
  EXPECT_TRUE(check_batch(many.batch).is_ok());
  EXPECT_LE(table_bytes(many.batch), kMaxTableBytes);
  many.segments.push_back(many.segments[0]);
  many.batch.segments = many.segments;
  EXPECT_NE(check_batch(many.batch).message().find("split it"), std::string::npos);
}

}  // namespace
}  // namespace rueda::gpu
