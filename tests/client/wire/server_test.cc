// Tests the library against the daemon's own session server, with an engine that sums float32 over
// the ranks.
#include <cstring>
#include <map>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "client/src/session/session.h"
#include "daemon/session/session.h"
#include "tests/client/requests.h"

namespace rueda::client {
namespace {

using session::SessionServer;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 2;

// Starts the job when all ranks are there, reduces a tensor when all have submitted it, and fails
// the job when one dies. Everything runs on the loop's thread.
class SumEngine : public session::SessionEvents {
 public:
  explicit SumEngine(boost::asio::io_context& loop) : loop_(loop) {}

  Status on_attach(session::Session& attached) override {
    sessions_[attached.attach().rank.value] = &attached;
    if (sessions_.size() == kRanks) boost::asio::post(loop_, [this] { start(); });
    return Status::ok();
  }
  void on_submit(session::Session& from, const session::Submission& submission) override {
    auto& ready = ready_[submission.descriptor->name];
    ready.emplace(from.attach().rank.value, submission);
    if (ready.size() < kRanks) return;
    reduce(ready);
    ready.clear();
  }
  void on_waiting(session::Session&, std::optional<Ticket>) override {}
  Status on_timeline(session::Session&, const session::TimelineWish&) override {
    return Status::ok();
  }
  void on_nonfinite_asked(session::Session& asking) override { asking.nonfinite(nullptr); }
  void on_device_memory(session::Session& from, session::DeviceMemory memory) override {
    from.device_memory_added(memory.id, {Code::kUnavailable, "there are no GPUs here"});
  }
  void on_device_memory_removed(session::Session&, uint32_t) override {}
  void on_submissions_drained(session::Session&) override {
    for (auto& [rank, session] : sessions_) session->flush();
  }
  void on_detached(session::Session& gone) override { sessions_.erase(gone.attach().rank.value); }
  void on_lost(session::Session& gone, const Status&) override {
    int32_t rank = gone.attach().rank.value;
    sessions_.erase(rank);
    for (auto& [other, session] : sessions_) {
      session->job_failed({Code::kRankLost, "rank " + std::to_string(rank) + " died"});
    }
  }

 private:
  void start() {
    for (auto& [rank, session] : sessions_) {
      session->started(
          {Epoch(1), Rank(rank), kRanks, LocalRank(rank), kRanks, NodeIndex(0), 1, "node"});
    }
  }
  void reduce(std::map<int32_t, session::Submission>& ready) {
    const core::TensorDescriptor& tensor = *ready.begin()->second.descriptor;
    std::vector<float> sum(static_cast<size_t>(tensor.elements()), 0.0f);
    for (auto& [rank, submission] : ready) {
      const auto* values = reinterpret_cast<const float*>(submission.input.data);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    for (auto& [rank, submission] : ready) {
      if (!sum.empty()) {
        std::memcpy(submission.output.data, sum.data(), sum.size() * sizeof(float));
      }
      sessions_[rank]->complete(submission.ticket, Status::ok(), Epoch(1), kRanks, Seq(++seq_));
    }
  }

  boost::asio::io_context& loop_;
  std::map<int32_t, session::Session*> sessions_;
  std::map<std::string, std::map<int32_t, session::Submission>> ready_;
  uint64_t seq_ = 0;
};

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    static int counter = 0;
    path_ = "@rueda-server-test-" + std::to_string(::getpid()) + "-" + std::to_string(++counter);
    session::ServerOptions options;
    options.sockets = {{path_, ""}};
    options.ring_capacity = 64;
    server_ = SessionServer::create(
        loop_, options, engine_, [](const UniqueFd&, const session::Credentials&, const auto&) {});
    EXPECT_TRUE(server_->listen().is_ok());
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~ServerTest() override {
    boost::asio::post(loop_, [this] {
      server_->stop();
      work_.reset();
    });
    thread_.join();
  }

  std::unique_ptr<Session> attach(int32_t rank) {
    Config config;
    config.socket_path = path_;
    config.job_id = "job";
    config.token = std::string(RUEDA_ABI_TOKEN_BYTES, 'k');
    config.rank = rank;
    config.local_rank = rank;
    config.timeout_ms = 20'000;
    auto session = Session::attach(config);
    EXPECT_TRUE(session.is_ok()) << session.status().message();
    return session.is_ok() ? std::move(session).value() : nullptr;
  }
  // Runs body(rank, session) on a thread for each rank.
  template <class Body>
  void run_ranks(Body body) {
    std::vector<std::thread> ranks;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([this, rank, &body] {
        std::unique_ptr<Session> session = attach(rank);
        if (session != nullptr) body(rank, std::move(session));
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  boost::asio::io_context loop_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      loop_.get_executor()};
  SumEngine engine_{loop_};
  std::string path_;
  std::unique_ptr<SessionServer> server_;
  std::thread thread_;
};

TEST_F(ServerTest, SumsArenaAndForeignMemory) {
  run_ranks([](int32_t rank, std::unique_ptr<Session> session) {
    EXPECT_EQ(session->place().world_size, kRanks);
    auto arena = static_cast<float*>(session->allocate(1000 * sizeof(float)).value());
    std::fill(arena, arena + 1000, static_cast<float>(rank + 1));
    std::vector<float> foreign(333, static_cast<float>(10 * (rank + 1)));
    for (int round = 0; round < 50; ++round) {
      std::string name = "round." + std::to_string(round % 5);
      std::fill(arena, arena + 1000, static_cast<float>(rank + 1));
      rueda_handle first =
          session->submit({allreduce_of((name + ".a").c_str(), arena, arena, 1000, 1.0)}).value();
      std::vector<float> out(333);
      rueda_handle second =
          session
              ->submit({allreduce_of((name + ".f").c_str(), foreign.data(), out.data(), 333, 1.0)})
              .value();
      rueda_handle third = session->submit({check_barrier(nullptr).value()}).value();
      for (rueda_handle handle : {third, second, first}) {
        Status status = session->wait(handle, 20'000, nullptr);
        ASSERT_TRUE(status.is_ok()) << status.message();
      }
      ASSERT_EQ(arena[999], 3.0f);
      ASSERT_THAT(out, Each(30.0f));
      ASSERT_THAT(foreign, Each(static_cast<float>(10 * (rank + 1))));
    }
    EXPECT_TRUE(session->free(arena).is_ok());
    EXPECT_TRUE(session->detach(20'000).is_ok());
  });
}

TEST_F(ServerTest, MoreInFlightThanTheRingHolds) {
  run_ranks([](int32_t, std::unique_ptr<Session> session) {
    std::vector<float> values(8, 1.0f);
    std::vector<rueda_handle> handles;
    std::vector<std::vector<float>> outputs(300, std::vector<float>(8));
    for (size_t i = 0; i < outputs.size(); ++i) {
      handles.push_back(session
                            ->submit({allreduce_of(("t" + std::to_string(i)).c_str(), values.data(),
                                                   outputs[i].data(), 8, 1.0)})
                            .value());
    }
    for (rueda_handle handle : handles) {
      ASSERT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
    }
    EXPECT_THAT(outputs[299], Each(2.0f));
    EXPECT_TRUE(session->detach(20'000).is_ok());
  });
}

TEST_F(ServerTest, ADeadRankEndsTheOthersWithItsName) {
  run_ranks([](int32_t rank, std::unique_ptr<Session> session) {
    if (rank == 1) return;  // the connection closes without a goodbye
    // The news may come before the submission, or while the rank waits for it.
    Result<rueda_handle> handle = session->submit({check_barrier("alone").value()});
    Status status =
        handle.is_ok() ? session->wait(handle.value(), 20'000, nullptr) : handle.status();
    EXPECT_EQ(status.code(), Code::kRankLost);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 died"));
  });
}

}  // namespace
}  // namespace rueda::client
