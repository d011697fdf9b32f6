// Tests how jobs share a data loop: what a job waits for while another has much to do. It counts
// operations and handlers, and no time.
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "daemon/engine/data/data_loop.h"
#include "tests/engine/ring.h"

namespace rueda::engine {
namespace {

using testing::OperationFixture;
using testing::OperationSpec;

constexpr int64_t kTurnFloats = kTurnBytes / static_cast<int64_t>(sizeof(float));

// A data loop on which the test runs one handler after the other, with jobs of one node.
class DataTurnsTest : public ::testing::Test {
 protected:
  ~DataTurnsTest() override {
    loop_.stop();
    io_.restart();
    io_.poll();
  }

  void begin(const std::string& job) {
    DataJobOptions options = testing::data_job_options(1, 0);
    options.job = job;
    options.events.on_done = [this, job](Seq, double) { ++done_[job]; };
    options.events.on_failed = [](Seq, const Status& why) { FAIL() << why.message(); };
    loop_.begin_epoch(std::move(options));
    io_.restart();
    io_.poll();
  }
  // Gives the job so many operations, all of which have the same memory.
  void give(const std::string& job, const OperationFixture& work, int times) {
    for (int i = 0; i < times; ++i) {
      std::unique_ptr<Operation> operation = work.operation(NodeIndex{0});
      operation->seq = Seq{++last_[job]};
      loop_.run(job, Epoch{1}, 0, std::move(operation));
    }
  }
  // Runs handlers until so many of the job's operations are done. Returns how many handlers ran.
  int run_until_done(const std::string& job, int operations) {
    int handlers = 0;
    io_.restart();
    while (done_[job] < operations && io_.poll_one() > 0) ++handlers;
    EXPECT_EQ(done_[job], operations);
    return handlers;
  }

  boost::asio::io_context io_{1};
  observe::Metrics metrics_{{"0", "test", "none"}};
  BusyPollLoop host_{io_};
  DataLoop loop_{metrics_,
                 [](boost::asio::io_context& io) {
                   return transport::make_mem_transport(io, transport::make_mem_network());
                 },
                 1, &host_};
  std::map<std::string, int> done_;
  std::map<std::string, uint64_t> last_;
  // Whole operations of one turn, and of one small handler.
  const OperationFixture large_{OperationSpec{.sizes = {kTurnFloats}}, {1}, Seq{1}};
  const OperationFixture small_{OperationSpec{.sizes = {1024}}, {1}, Seq{1}};
};

// All of them once had their first turns one after the other, and 4 KiB waited for 160 MiB.
TEST_F(DataTurnsTest, ASmallOperationWaitsForOneTurnOfAJobThatHasManyLargeOnes) {
  begin("large");
  begin("small");
  give("large", large_, 20);
  give("small", small_, 1);
  run_until_done("small", 1);
  EXPECT_EQ(done_["large"], 1);
  give("small", small_, 1);
  run_until_done("small", 2);
  EXPECT_LE(done_["large"], 2);
  run_until_done("large", 20);
  EXPECT_EQ(large_.check(), "");
  EXPECT_EQ(small_.check(), "");
}

TEST_F(DataTurnsTest, ASmallOperationWaitsForOneTurnOfALargeOne) {
  const OperationFixture larger{OperationSpec{.sizes = {4 * kTurnFloats}}, {1}, Seq{1}};
  begin("large");
  begin("small");
  give("large", larger, 1);
  give("small", small_, 1);
  EXPECT_EQ(run_until_done("small", 1), 2);
  EXPECT_EQ(done_["large"], 0);
  EXPECT_EQ(run_until_done("large", 1), 3);
  EXPECT_EQ(larger.check(), "");
}

TEST_F(DataTurnsTest, JobsHaveAsManyBytesEachThoughOneHasMoreOperations) {
  begin("many");
  begin("few");
  give("many", large_, 30);
  give("few", large_, 5);
  run_until_done("few", 5);
  EXPECT_GE(done_["many"], 4);
  EXPECT_LE(done_["many"], 6);
  run_until_done("many", 30);
}

// 4 KiB a handler, from a job that always has more of them.
TEST_F(DataTurnsTest, ManySmallOperationsAreNoMoreThanAFewLargeOnes) {
  constexpr int kSmallPerTurn = static_cast<int>(kTurnBytes / (1024 * sizeof(float)));
  begin("many");
  begin("few");
  give("many", small_, 4 * kSmallPerTurn);
  give("few", large_, 3);
  run_until_done("few", 2);
  EXPECT_LE(done_["many"], 3 * kSmallPerTurn);
  run_until_done("many", 4 * kSmallPerTurn);
  run_until_done("few", 3);
}

}  // namespace
}  // namespace rueda::engine
