// Tests communicators of NCCL, with a library that does what the test says.
#include <cstdlib>
#include <deque>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/gpu/device.h"
#include "daemon/gpu/nccl/nccl_communicator.h"

namespace rueda::gpu::nccl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kRemoteError = 6;

// Holds the arguments of calls, and the results of the next ones; the last result comes again and
// again.
struct Script {
  std::deque<int> begins;  // results of calls that begin something
  std::deque<int> states;  // results of ncclCommGetAsyncError
  std::vector<std::string> calls;
  Config config;
  const char* last_error = "";

  static int next(std::deque<int>& from) {
    const int outcome = from.empty() ? kSuccess : from.front();
    if (from.size() > 1) from.pop_front();
    return outcome;
  }
};
Script script;

class StreamOfNone final : public Stream {
 public:
  Status copy_to_device(DeviceAddress, const std::byte*, size_t) override { return {}; }
  Status copy_to_host(std::byte*, DeviceAddress, size_t) override { return {}; }
  Status copy(DeviceAddress, DeviceAddress, size_t) override { return {}; }
  Status wait_value(const uint64_t*, uint64_t) override { return {}; }
  Status write_value(uint64_t*, uint64_t) override { return {}; }
  Status write_values(std::span<const CounterValue>) override { return {}; }
  Status reduce(const Batch&) override { return {}; }
  Result<bool> is_idle() override { return true; }
};

Library make_library() {
  Library library;
  library.version = 22809;
  library.comm_init_rank_config = [](Comm* comm, int size, UniqueId id, int rank, Config* config) {
    *comm = &script;
    script.config = *config;
    script.calls.push_back("init " + std::to_string(rank) + " of " + std::to_string(size) + " by " +
                           std::to_string(static_cast<int>(id.bytes[127])));
    return Script::next(script.begins);
  };
  library.comm_get_async_error = [](Comm comm, int* state) {
    EXPECT_EQ(comm, &script);
    *state = Script::next(script.states);
    return static_cast<int>(kSuccess);
  };
  library.comm_abort = [](Comm) {
    script.calls.push_back("abort");
    return static_cast<int>(kSuccess);
  };
  library.all_reduce = [](const void* from, void* to, size_t count, int dtype, int op, Comm,
                          CudaStream stream) {
    EXPECT_EQ(from, to);
    EXPECT_EQ(stream, &script.calls);
    script.calls.push_back("reduce " + std::to_string(reinterpret_cast<uint64_t>(to)) + ' ' +
                           std::to_string(count) + ' ' + std::to_string(dtype) + ' ' +
                           std::to_string(op));
    return Script::next(script.begins);
  };
  library.broadcast = [](const void*, void* to, size_t bytes, int dtype, int root, Comm,
                         CudaStream) {
    script.calls.push_back("broadcast " + std::to_string(reinterpret_cast<uint64_t>(to)) + ' ' +
                           std::to_string(bytes) + ' ' + std::to_string(dtype) + ' ' +
                           std::to_string(root));
    return Script::next(script.begins);
  };
  library.get_error_string = [](int) { return "remote process exited"; };
  library.get_last_error = [](Comm) { return script.last_error; };
  return library;
}

class Nccl : public testing::Test {
 protected:
  Nccl() { script = {}; }

  std::unique_ptr<Communicator> connect() {
    CommunicatorId id{};
    id[127] = std::byte{9};
    auto made = NcclCommunicator::connect(library_, host_, id, 1, 3);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return made.is_ok() ? std::move(made).value() : nullptr;
  }
  Status reduce(Communicator& communicator) {
    return communicator.all_reduce(stream_, 512, 7, DType::kBFloat16, ReduceOp::kMax);
  }

  const Library library_ = make_library();
  int entered_ = 0;
  Status lost_;
  StreamOfNone stream_;
  const Host host_{.enter =
                       [this] {
                         ++entered_;
                         return lost_;
                       },
                   .handle_of = [](Stream&) -> CudaStream { return &script.calls; }};
};

TEST_F(Nccl, IsNeverWaitedForWhileItConnects) {
  script.begins = {kInProgress, kSuccess};
  script.states = {kInProgress, kInProgress, kSuccess};
  const auto communicator = connect();
  EXPECT_THAT(script.calls, testing::ElementsAre("init 1 of 3 by 9"));
  EXPECT_EQ(script.config.blocking, 0);
  EXPECT_EQ(script.config.magic, 0xcafebeefu);
  EXPECT_GT(script.config.max_ctas, 0);
  EXPECT_EQ(communicator->health().code(), Code::kUnavailable);
  EXPECT_EQ(reduce(*communicator).code(), Code::kUnavailable);
  EXPECT_EQ(script.calls.size(), 1u);  // its state was not asked for yet
  EXPECT_TRUE(reduce(*communicator).is_ok());
  EXPECT_EQ(script.calls.back(), "reduce 512 7 9 2");
  EXPECT_GE(entered_, 4);
}

// NCCL may go on with a call by itself; then nothing else may be called, and that call not again.
TEST_F(Nccl, ACallThatTakesTimeIsMadeOnce) {
  const auto communicator = connect();
  script.begins = {kInProgress, kSuccess};
  script.states = {kSuccess, kInProgress, kSuccess};
  EXPECT_EQ(reduce(*communicator).code(), Code::kUnavailable);
  EXPECT_EQ(reduce(*communicator).code(), Code::kUnavailable);
  EXPECT_TRUE(reduce(*communicator).is_ok());
  EXPECT_EQ(script.calls.size(), 2u);
  EXPECT_TRUE(communicator->broadcast(stream_, 1024, 40, 2).is_ok());
  EXPECT_EQ(script.calls.back(), "broadcast 1024 40 1 2");
}

TEST_F(Nccl, WhatGoesWrongIsKeptWithWhatNcclSaysOfIt) {
  const auto communicator = connect();
  script.states = {kRemoteError};
  script.last_error = "socket closed by 10.0.0.7";
  const Status failed = communicator->health();
  EXPECT_EQ(failed.code(), Code::kNodeLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("NCCL 2.28.9, waiting for other nodes: remote "
                                                "process exited (socket closed by 10.0.0.7)"),
                                      HasSubstr("NCCL_DEBUG=INFO")));
  script.states = {kSuccess};
  EXPECT_EQ(communicator->health(), failed);
  EXPECT_EQ(reduce(*communicator), failed);
}

TEST_F(Nccl, AFailedConnectIsAnErrorAndAborted) {
  script.begins = {kInvalidArgument};
  EXPECT_EQ(NcclCommunicator::connect(library_, host_, {}, 0, 2).status().code(), Code::kInternal);
  EXPECT_EQ(script.calls.back(), "abort");
}

TEST_F(Nccl, IsAbortedUnlessTheDeviceIsLost) {
  connect().reset();
  EXPECT_EQ(script.calls.back(), "abort");
  auto communicator = connect();
  lost_ = {Code::kUnavailable, "the device is lost"};
  EXPECT_EQ(communicator->health(), lost_);
  communicator.reset();
  EXPECT_THAT(script.calls.back(), HasSubstr("init"));
}

TEST_F(Nccl, HasNumbersForAllThatItReduces) {
  std::vector<int> numbers;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    numbers.push_back(number_of(static_cast<DType>(dtype)));
  }
  EXPECT_THAT(numbers, testing::ElementsAre(7, 8, 6, 9, 2, 4, 0, 1, -1, -1, -1, 3, 5, -1, -1));
  const auto communicator = connect();
  EXPECT_EQ(communicator->all_reduce(stream_, 0, 1, DType::kBool, ReduceOp::kMax).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(communicator->all_reduce(stream_, 0, 1, DType::kInt8, ReduceOp::kAverage).code(),
            Code::kInvalidArgument);
}

TEST(NcclLibrary, OneThatIsNotThereOrNoneIsAnErrorWithTheRemedy) {
  for (const char* file : {"/nonexistent/libnccl.so.2", "libm.so.6"}) {
    ::setenv("RUEDA_NCCL_LIBRARY", file, 1);
    const auto loaded = load();
    EXPECT_EQ(loaded.status().code(), Code::kUnavailable);
    EXPECT_THAT(loaded.status().message(),
                AllOf(HasSubstr(file), HasSubstr("RUEDA_NCCL_LIBRARY"), HasSubstr("--inter-node")));
  }
  ::unsetenv("RUEDA_NCCL_LIBRARY");
}

// This machine's library, if there is one, has the functions that we call.
TEST(NcclLibrary, TheMachinesIsFound) {
  const auto loaded = load();
  if (!loaded.is_ok()) GTEST_SKIP() << loaded.status().message();
  EXPECT_GE(loaded.value().version, 21800);
  EXPECT_STREQ(loaded.value().get_error_string(kSuccess), "no error");
}

}  // namespace
}  // namespace rueda::gpu::nccl
