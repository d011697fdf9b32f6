#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rueda/rueda.hpp>

#include "tests/client/fake_daemon.h"

namespace {

using rueda::client::FakeDaemon;
using ::testing::Each;
using ::testing::HasSubstr;

class CppApiTest : public ::testing::Test {
 protected:
  CppApiTest() { daemon_.set_environment(); }
  FakeDaemon daemon_;
};

TEST_F(CppApiTest, LivesAsLongAsItsScope) {
  {
    rueda::Context context;
    EXPECT_EQ(context.rank(), 0);
    EXPECT_EQ(context.size(), 1);
    EXPECT_EQ(context.node_id(), "fake-node");
  }
  EXPECT_EQ(rueda_is_initialized(), 0);
  EXPECT_TRUE(daemon_.wait_for([](const auto& counts) { return counts.detaches == 1; }));
}

TEST_F(CppApiTest, ReducesBuffersAndSpans) {
  rueda::Context context;
  rueda::Buffer<float> buffer(100);
  EXPECT_EQ(buffer[99], 0.0f);
  buffer[99] = 2.0f;
  rueda::allreduce("buffer", buffer, {rueda::Op::kSum, 4.0, 1.0});
  EXPECT_EQ(buffer[99], 8.0f);
  EXPECT_EQ(context.stats().bytes_copied_in, 0u);

  const std::vector<double> in(10, 1.5);
  std::vector<double> out(10);
  rueda::allreduce("span", std::span(in), std::span(out), rueda::Op::kMax);
  EXPECT_THAT(out, Each(1.5));
  rueda::allreduce<double>("shorthand", in, out);
  std::vector<int64_t> counts(3, 7);
  rueda::broadcast("counts", std::span(counts), 0);
  EXPECT_THAT(counts, Each(7));
  rueda::Buffer<rueda::BFloat16> half(4);
  rueda::broadcast("half", half, 0);
  rueda::barrier();
}

TEST_F(CppApiTest, ThenTellsOfTheEndInPlaceOfAWait) {
  std::vector<int> codes;
  rueda::Buffer<float>* kept = nullptr;
  {
    rueda::Context context;
    rueda::Buffer<float> data(10);
    kept = &data;
    data[9] = 1.0f;
    rueda::Handle handle = rueda::allreduce_async("t", data, {rueda::Op::kSum, 2.0, 1.0});
    handle.then([&](const rueda::Ended& ended) {
      EXPECT_EQ((*kept)[9], 2.0f);
      EXPECT_EQ(ended.result.contributors, 1u);
      EXPECT_EQ(ended.message, "");
      ended.check();
      codes.push_back(ended.code);
    });
    EXPECT_THROW(handle.then([](const rueda::Ended&) {}), rueda::Error) << "it has been given up";
    EXPECT_EQ(rueda_shutdown(), RUEDA_OK);
  }
  EXPECT_THAT(codes, testing::ElementsAre(RUEDA_OK));
  const rueda::Ended failed{RUEDA_ERR_MISMATCH, "they differ", {}};
  EXPECT_THROW(failed.check(), rueda::Error);
}

TEST_F(CppApiTest, HandlesWaitAndMove) {
  rueda::Context context;
  rueda::Buffer<int32_t> data(10);
  rueda::Handle handle = rueda::allreduce_async("t", data, rueda::Op::kSum);
  rueda::Handle moved = std::move(handle);
  rueda_result result = moved.wait(std::chrono::seconds(20));
  EXPECT_EQ(result.contributors, 1u);
  { rueda::Handle dropped = rueda::broadcast_async("b", data.span(), 0); }
  std::vector<float> a(3, 1.0f), b(4, 2.0f);
  const std::span<float> members[] = {a, b};
  rueda::grouped_allreduce<float>("group", members, {rueda::Op::kSum, 2.0, 1.0});
  EXPECT_THAT(a, Each(2.0f));
  EXPECT_THAT(b, Each(4.0f));
}

TEST_F(CppApiTest, ErrorsAreExceptionsWithCodes) {
  rueda::Context context;
  std::vector<float> in(3), out(4);
  try {
    rueda::allreduce<float>("uneven", in, out);
    FAIL();
  } catch (const rueda::Error& error) {
    EXPECT_EQ(error.code(), RUEDA_ERR_INVALID_ARGUMENT);
    EXPECT_THAT(error.what(), HasSubstr("uneven"));
  }
  daemon_.set_completes(false);
  rueda::Handle handle = rueda::allreduce_async<float>("slow", in, in);
  try {
    handle.wait(std::chrono::milliseconds(1));
    FAIL();
  } catch (const rueda::Error& error) {
    EXPECT_EQ(error.code(), RUEDA_ERR_TIMEOUT);
  }
  EXPECT_FALSE(handle.test());
  daemon_.set_completes(true);
  handle.wait();
}

}  // namespace
