// Tests the CUDA kernel's text on the CPU: block by block, thread by thread, in any order, because
// threads share nothing. Addresses are the host's.
#include "daemon/gpu/cuda/tile.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "daemon/gpu/dispatch.h"
#include "tests/gpu/plans.h"

namespace rueda::gpu::cuda {
namespace {

struct OnCpu {
  const Shape& shape;
  const Scales& scales;
  const std::vector<uint64_t>& words;
  uint32_t blocks;

  template <class K>
  void run() const {
    for (uint32_t block = blocks; block-- > 0;) {
      for (uint32_t thread = kThreads; thread-- > 0;) {
        run_block<K>(words.data(), shape, scales, block, blocks, thread);
      }
    }
  }
};

void run_kernel(const Batch& batch, uint32_t blocks) {
  ASSERT_TRUE(check_batch(batch).is_ok()) << check_batch(batch).to_string();
  std::vector<uint64_t> words(table_bytes(batch) / sizeof(uint64_t));
  const Shape shape = fill_table(batch, words);
  const Scales scales{batch.prescale, batch.postscale, batch.divisor};
  const OnCpu visitor{shape, scales, words, blocks};
  switch (batch.dtype) {
    case DType::kFloat32: return visit_float32(batch, visitor);
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kComplex64:
    case DType::kComplex128: return visit_other_floats(batch, visitor);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return visit_signed(batch, visitor);
    default: return visit_unsigned(batch, visitor);
  }
}

// Memory at a multiple of 256, as a device's is.
class Memory {
 public:
  explicit Memory(const std::vector<std::byte>& bytes)
      : size_(bytes.size()), owned_(static_cast<std::byte*>(std::aligned_alloc(256, room()))) {
    std::memcpy(owned_.get(), bytes.data(), size_);
  }
  DeviceAddress base() const { return reinterpret_cast<DeviceAddress>(owned_.get()); }
  std::vector<std::byte> bytes() const { return {owned_.get(), owned_.get() + size_}; }

 private:
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  size_t room() const { return (size_ + 255) / 256 * 256; }

  size_t size_;
  std::unique_ptr<std::byte, Free> owned_;
};

void expect_as_kernels(BatchMemory& batch, uint32_t blocks) {
  const Memory memory(batch.before());
  run_kernel(batch.at(memory.base()), blocks);
  ASSERT_EQ(batch.difference(memory.bytes(), batch.by_kernels()), "");
}

TEST(Tile, EveryDtypeOpAndNumberOfSources) {
  for_each_plain_plan([](const BatchPlan& plan) {
    BatchMemory batch(plan, plan.sources);
    expect_as_kernels(batch, 3);
  });
}

TEST(Tile, PartialsAndScales) {
  for_each_other_plan([](const BatchPlan& plan) {
    BatchMemory batch(plan, 1);
    expect_as_kernels(batch, 7);
  });
}

TEST(Tile, WireTypes) {
  for_each_wire_plan([](const BatchPlan& plan) {
    BatchMemory batch(plan, 2);
    expect_as_kernels(batch, 2);
  });
}

TEST(Tile, AnyNumberOfBlocks) {
  for (uint32_t blocks = 1; blocks < 40; ++blocks) {
    BatchPlan plan{.sources = 2, .counts = {1, 20'000, 4096, 4097, 2, 70'000, 3, 3}};
    plan.lie_alike = blocks % 2 == 0;
    BatchMemory batch(plan, blocks);
    expect_as_kernels(batch, blocks);
  }
}

TEST(Tile, SegmentsOfAllSizes) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    BatchPlan plan{.dtype = kAllDTypes[round % 9], .sources = 3, .destinations = 2};
    for (int s = 0; s < 40; ++s) plan.counts.push_back(1 + random() % (1 << (random() % 14)));
    plan.lie_alike = round % 3 != 0;
    BatchMemory batch(plan, round);
    expect_as_kernels(batch, 5);
  }
}

Shape shape_of(const Batch& batch, std::vector<uint64_t>& words) {
  words.assign(table_bytes(batch) / sizeof(uint64_t), 0);
  return fill_table(batch, words);
}

TEST(Table, TilesAreCountedAcrossSegments) {
  const DeviceAddress at = 4096;
  std::vector<Segment> segments;
  // A vector has 4 floats, a tile 4,096.
  for (const uint64_t count : {1, 4096, 4097, 4100, 8192}) {
    segments.push_back(
        {.count = count, .sources = std::span(&at, 1), .destinations = std::span(&at, 1)});
  }
  std::vector<uint64_t> words;
  const Shape shape = shape_of({.segments = segments}, words);
  EXPECT_EQ(shape.row_words, 6u);
  EXPECT_EQ(shape.tiles, 1u + 1 + 1 + 2 + 2);
  const uint64_t first_tiles[] = {0, 1, 2, 3, 5};
  for (size_t s = 0; s < segments.size(); ++s) {
    EXPECT_EQ(words[s * shape.row_words + kFirstTile], first_tiles[s]);
    EXPECT_EQ(row_of_tile(words.data(), shape, first_tiles[s]), s);
  }
  EXPECT_EQ(row_of_tile(words.data(), shape, 4), 3u);
  EXPECT_EQ(row_of_tile(words.data(), shape, 6), 4u);
}

uint64_t head_of(DType dtype, std::optional<DType> dst_dtype, DeviceAddress source,
                 DeviceAddress destination) {
  const Segment segment{
      .count = 100, .sources = std::span(&source, 1), .destinations = std::span(&destination, 1)};
  std::vector<uint64_t> words;
  shape_of({.dtype = dtype, .dst_dtype = dst_dtype, .segments = std::span(&segment, 1)}, words);
  return words[kHead];
}

TEST(Table, VectorsBeginWhereAllAddressesAreAligned) {
  EXPECT_EQ(head_of(DType::kFloat32, {}, 4096, 8192), 0u);
  EXPECT_EQ(head_of(DType::kFloat32, {}, 4100, 8196), 3u);
  EXPECT_EQ(head_of(DType::kFloat32, {}, 4100, 8192), kNoVectors);
  EXPECT_EQ(head_of(DType::kUInt8, {}, 4097, 8193), 15u);
  EXPECT_EQ(head_of(DType::kFloat64, {}, 4104, 8200), 1u);
  // Four floats of 16 bytes become four halves of 8 bytes.
  EXPECT_EQ(head_of(DType::kFloat32, DType::kFloat16, 4100, 8194), 3u);
  EXPECT_EQ(head_of(DType::kFloat32, DType::kFloat16, 4096, 8200), 0u);
  EXPECT_EQ(head_of(DType::kFloat32, DType::kFloat16, 4096, 8194), kNoVectors);
}

}  // namespace
}  // namespace rueda::gpu::cuda
