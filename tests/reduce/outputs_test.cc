// Tests that several outputs of one pass get what one output would get, wherever they lie, written
// past the caches or not.
#include <random>
#include <string>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

constexpr DType kAllDTypes[] = {
    DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,  DType::kInt32,
    DType::kInt64,   DType::kInt8,    DType::kUInt8,   DType::kBool,      DType::kInt16,
    DType::kUInt16,  DType::kUInt32,  DType::kUInt64,  DType::kComplex64, DType::kComplex128};
constexpr size_t kLineBytes = 64;
constexpr size_t kGuardBytes = 64;

// Bytes at a place within a cache line, with guards on both sides.
class Memory {
 public:
  Memory(size_t bytes, size_t place)
      : bytes_(bytes), memory_(place + bytes + kLineBytes + kGuardBytes, kGuard) {
    const size_t base = reinterpret_cast<uintptr_t>(memory_.data()) % kLineBytes;
    begin_ = kLineBytes - base + place;
  }

  uint8_t* data() { return memory_.data() + begin_; }
  std::vector<uint8_t> values() { return {data(), data() + bytes_}; }
  bool is_intact_around() const {
    const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
    const auto end = memory_.begin() + static_cast<ptrdiff_t>(begin_ + bytes_);
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<ptrdiff_t>(begin_),
                       is_guard) &&
           std::all_of(end, memory_.end(), is_guard);
  }

 private:
  size_t bytes_;
  size_t begin_ = 0;
  std::vector<uint8_t> memory_;
};

struct Case {
  ReduceArgs args;  // has no addresses yet
  size_t inputs = 2;
  size_t outputs = 2;
  size_t place = 0;          // the first output's place in its cache line
  size_t step_of_place = 0;  // the step from one output to the next
  bool in_place = false;     // the first outputs are the first inputs
};

std::string describe(const Case& work) {
  return std::string(to_string(work.args.dtype)) + " " + to_string(work.args.op) + " of " +
         std::to_string(work.args.count) + ", inputs " + std::to_string(work.inputs) +
         ", outputs " + std::to_string(work.outputs) + ", place " + std::to_string(work.place) +
         " + " + std::to_string(work.step_of_place) + (work.in_place ? ", in place" : "") +
         (work.args.streams ? ", streams" : "");
}

void check(const Case& work, std::mt19937& random) {
  SCOPED_TRACE(describe(work));
  const size_t bytes = work.args.count * element_bytes(work.args.dtype);
  std::vector<Memory> inputs;
  std::vector<const void*> sources;
  for (size_t i = 0; i < work.inputs; ++i) {
    inputs.emplace_back(bytes, work.place + i * work.step_of_place);
    for (size_t at = 0; at < bytes; ++at)
      inputs[i].data()[at] = static_cast<uint8_t>(random() & 0xbf);  // makes no NaN
  }
  for (Memory& input : inputs) sources.push_back(input.data());
  ReduceArgs args = work.args;
  args.sources = sources;

  Memory expected(bytes, 0);
  ReduceArgs one = args;
  one.streams = false;
  one.dst = expected.data();
  reduce(one);

  std::vector<Memory> others;
  others.reserve(work.outputs);
  std::vector<void*> destinations;
  std::vector<Memory*> outputs;
  for (size_t i = 0; i < work.outputs; ++i) {
    const bool is_input = work.in_place && i < work.inputs;
    if (!is_input) others.emplace_back(bytes, work.place + i * work.step_of_place);
    outputs.push_back(is_input ? &inputs[i] : &others.back());
    destinations.push_back(outputs.back()->data());
  }
  args.dst = destinations.front();
  args.copies = std::span(destinations).subspan(1);
  reduce(args);
  for (size_t i = 0; i < work.outputs; ++i) {
    ASSERT_EQ(outputs[i]->values(), expected.values()) << "output " << i;
    ASSERT_TRUE(outputs[i]->is_intact_around()) << "output " << i;
  }
}

class Outputs : public ::testing::TestWithParam<DType> {};

TEST_P(Outputs, AllGetWhatOneWouldGet) {
  std::mt19937 random(1);
  Case work;
  work.args.dtype = GetParam();
  const size_t element = element_bytes(GetParam());
  for (const ReduceOp op : kOps) {
    if (GetParam() == DType::kBool && op == ReduceOp::kAverage) continue;
    if (!has_operator(GetParam(), op)) continue;
    work.args.op = op;
    for (work.args.count = 1; work.args.count < 700; work.args.count += 1 + work.args.count / 3) {
      for (const size_t ranks : {1, 2, 3, 4, 7}) {
        work.inputs = work.outputs = ranks;
        for (const size_t place : {size_t{0}, element, 3 * element, size_t{1}}) {
          for (const size_t step : {size_t{0}, element}) {
            for (const bool in_place : {false, true}) {
              work.place = place;
              work.step_of_place = step;
              work.in_place = in_place;
              work.args.streams = !in_place;
              check(work, random);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_P(Outputs, AreTheSameOnEveryTarget) {
  for_each_target([] {
    std::mt19937 random(2);
    Case work;
    work.args.dtype = GetParam();
    for (const size_t count : {1, 31, 300}) {
      for (const bool streams : {false, true}) {
        work.args.count = count;
        work.args.streams = streams;
        work.place = element_bytes(GetParam());
        work.outputs = 3;
        check(work, random);
      }
    }
  });
}

TEST_P(Outputs, AreScaledAlike) {
  if (GetParam() == DType::kBool) return;
  std::mt19937 random(3);
  Case work;
  work.args.dtype = GetParam();
  work.args.count = 333;
  work.args.prescale = 0.5;
  work.args.divisor = 3;
  work.outputs = 4;
  for (const bool streams : {false, true}) {
    work.args.streams = streams;
    check(work, random);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Outputs, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace rueda::reduce::testing
