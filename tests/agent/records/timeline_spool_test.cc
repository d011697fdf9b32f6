#include "agent/records/timeline_spool.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sched.h>

#include "agent/records/timeline_lines.h"
#include "tests/support/temporary_folder.h"

namespace rueda::agent {
namespace {

using nlohmann::json;

// Returns a batch of two ranks and two tensors; rank 1 has joined before the second tensor.
v1::TimelineBatch batch_of(uint64_t number) {
  v1::TimelineBatch batch;
  batch.set_node(1);
  batch.set_node_id("n\"1");
  for (const auto& [track, name] :
       std::map<uint32_t, std::string>{{7, "tensor a"}, {8, "tensor b"}, {9, "ring 0"}}) {
    v1::TimelineBatch::Track& item = *batch.add_tracks();
    item.set_number(track);
    item.set_name(name);
  }
  batch.add_tensors()->add_track(7);
  batch.mutable_tensors(0)->add_track(8);
  v1::TimelineBatch::Operation& operation = *batch.add_operations();
  operation.set_tensors(0);
  operation.set_number(number);
  operation.set_process_set(2);
  operation.set_launched_ns(1'000'000'123);
  operation.set_begun_after_ns(1'500);
  operation.set_ended_after_ns(30'000);
  const auto add_ready = [&](int32_t rank, uint32_t tensors, uint64_t before_ns) {
    operation.add_ready_rank(rank);
    operation.add_ready_tensors(tensors);
    operation.add_ready_before_ns(before_ns);
  };
  add_ready(2, 2, 50'001);
  add_ready(3, 1, 90'001);
  add_ready(3, 1, 0);
  batch.add_track(9);
  batch.add_kind(1);
  batch.add_process_set(2);
  batch.add_begin_delta_ns(-5);
  batch.add_duration_ns(1'234'567);
  batch.add_operation(number);
  batch.add_value(4096);
  return batch;
}

class TimelineSpoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<TimelineSpool> open(size_t max_bytes = TimelineSpool::kMaxBytes) {
    auto file = TimelineFile::open(path(), "job");
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return std::make_unique<TimelineSpool>(std::move(file).value(), max_bytes);
  }
  std::string path() const { return folder_ + "/timeline.json"; }
  json written() const {
    std::ifstream file(path());
    return json::parse(file);
  }
  // Returns the events on a track, in order.
  static std::vector<json> events_on(const json& timeline, const std::string& track) {
    std::vector<json> out;
    json thread;
    for (const json& event : timeline.at("traceEvents")) {
      if (event.at("name") == "thread_name" && event.at("args").at("name") == track) {
        thread = event.at("tid");
      }
      if (event.at("ph") != "M" && event.at("tid") == thread) out.push_back(event);
    }
    return out;
  }

  const testing_support::TemporaryFolder kept_folder_;
  const std::string folder_ = kept_folder_.path();
};

TEST_F(TimelineSpoolTest, EachTensorOfAnOperationHasItsEvents) {
  const auto spool = open();
  ASSERT_TRUE(spool->write(batch_of(12)).is_ok());
  ASSERT_TRUE(spool->close({}).is_ok());
  const json timeline = written();
  const json arguments = {{"operation", "12"}, {"process_set", 2}};
  const auto span = [&](double ts, double dur, const std::string& name) {
    return json{{"ph", "X"},  {"pid", 2},     {"ts", ts},
                {"dur", dur}, {"name", name}, {"args", arguments}};
  };
  const auto ready = [&](double ts, int rank) {
    json args = arguments;
    args["rank"] = rank;
    return json{{"ph", "i"},
                {"s", "t"},
                {"pid", 2},
                {"ts", ts},
                {"name", "ready " + std::to_string(rank)},
                {"args", args}};
  };
  const auto negotiate = [&](double ts, double dur) {
    json event = span(ts, dur, "NEGOTIATE");
    event["args"]["collective"] = "ALLREDUCE";
    return event;
  };
  const auto without_thread = [&](const std::string& track) {
    std::vector<json> events = events_on(timeline, track);
    for (json& event : events) event.erase("tid");
    return events;
  };
  EXPECT_EQ(
      without_thread("a"),
      (std::vector<json>{negotiate(999910.123, 90.0), ready(999910.123, 3), ready(999950.123, 2),
                         span(1000000.123, 30.0, "ALLREDUCE"), span(1000000.123, 1.5, "QUEUE")}));
  EXPECT_EQ(
      without_thread("b"),
      (std::vector<json>{negotiate(999950.123, 50.0), ready(999950.123, 2),
                         span(1000000.123, 30.0, "ALLREDUCE"), span(1000000.123, 1.5, "QUEUE")}));
  json ring = span(-0.005, 1234.567, "RING");
  ring["args"]["bytes"] = 4096;
  EXPECT_EQ(without_thread("ring 0"), std::vector<json>{ring});
  EXPECT_EQ(timeline.at("rueda").at("nodes").at(0).at("events"), 10);
  EXPECT_EQ(timeline.at("rueda").at("nodes").at(0).at("node_id"), "n\"1");
}

TEST_F(TimelineSpoolTest, WhatWaitsAtTheEndIsWritten) {
  const auto spool = open();
  constexpr int kBatches = 500;
  for (int i = 0; i < kBatches; ++i) {
    ASSERT_TRUE(spool->write(batch_of(static_cast<uint64_t>(i))).is_ok());
  }
  ASSERT_TRUE(spool->close({}).is_ok());
  const json timeline = written();
  const std::vector<json> events = events_on(timeline, "a");
  ASSERT_EQ(events.size(), 5u * kBatches);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].at("args").at("operation"), std::to_string(i / 5));
  }
  EXPECT_EQ(spool->losses(), "");
}

TEST_F(TimelineSpoolTest, WhatFindsNoRoomIsCounted) {
  const auto spool = open(batch_of(1).ByteSizeLong() - 1);
  EXPECT_TRUE(spool->write(batch_of(1)).is_ok());
  v1::TimelineBatch last;
  last.set_node(1);
  last.set_node_id("n1");
  last.set_dropped(5);
  EXPECT_TRUE(spool->write(last).is_ok());
  ASSERT_TRUE(spool->close({}).is_ok());
  EXPECT_EQ(written().at("rueda").at("nodes").at(0).at("dropped_events"), 15);
  EXPECT_EQ(written().at("rueda").at("nodes").at(0).at("events"), 0);
  EXPECT_EQ(spool->losses(), "; 15 events found no room");
}

TEST_F(TimelineSpoolTest, NamesThatFoundNoRoomAreKept) {
  v1::TimelineBatch later = batch_of(2);
  later.clear_tracks();
  v1::TimelineBatch large = batch_of(1);
  for (int i = 0; i < 10; ++i) *large.add_operations() = large.operations(0);
  const auto spool = open(large.ByteSizeLong() - 1);
  EXPECT_TRUE(spool->write(large).is_ok());
  EXPECT_TRUE(spool->write(later).is_ok());
  ASSERT_TRUE(spool->close({}).is_ok());
  EXPECT_EQ(events_on(written(), "a").size(), 5u);
}

TEST_F(TimelineSpoolTest, EventsOnTracksWithoutANameAreCounted) {
  v1::TimelineBatch batch = batch_of(1);
  batch.clear_tracks();
  const auto spool = open();
  EXPECT_TRUE(spool->write(batch).is_ok());
  ASSERT_TRUE(spool->close({}).is_ok());
  EXPECT_EQ(written().at("rueda").at("nodes").at(0).at("dropped_events"), 10);
}

TEST_F(TimelineSpoolTest, NothingIsWrittenUntilHalfOfTheRoomIsTaken) {
  const size_t each_bytes = batch_of(1).ByteSizeLong();
  const auto spool = open(4 * each_bytes);
  const auto head_bytes = std::filesystem::file_size(path());
  EXPECT_TRUE(spool->write(batch_of(1)).is_ok());
  EXPECT_TRUE(spool->write(batch_of(2)).is_ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(std::filesystem::file_size(path()), head_bytes);
  EXPECT_TRUE(spool->write(batch_of(3)).is_ok());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::filesystem::file_size(path()) == head_bytes) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    ::sched_yield();
  }
}

TEST_F(TimelineSpoolTest, WritesWhenTheMachineHasNothingElseToDo) {
  const auto spool = open();
  const auto policy = [] {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
      if (name == "rueda-timeline") return ::sched_getscheduler(std::stoi(task.path().filename()));
    }
    return -1;
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (policy() != SCHED_IDLE && std::chrono::steady_clock::now() < until) ::sched_yield();
  EXPECT_EQ(policy(), SCHED_IDLE);
}

TEST_F(TimelineSpoolTest, AnotherNodeChoosesNoFileOfThisUser) {
  std::ofstream(path()) << "kept";
  std::filesystem::create_directory(folder_ + "/.hidden");
  std::filesystem::create_symlink(folder_ + "/elsewhere", folder_ + "/link.json");
  for (const std::string& bad :
       {path(), folder_ + "/.bashrc", folder_ + "/program.py", folder_ + "/.hidden/new.json",
        folder_ + "/../new.json", folder_ + "/link.json", std::string("new.json"), std::string()}) {
    EXPECT_FALSE(TimelineFile::open_for_another_node(bad, "job").is_ok()) << bad;
  }
  std::string text;
  std::getline(std::ifstream(path()), text);
  EXPECT_EQ(text, "kept");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
  EXPECT_TRUE(TimelineFile::open_for_another_node(folder_ + "/new.json", "job").is_ok());
}

TEST_F(TimelineSpoolTest, ADiskThatIsFullIsSaid) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const auto opened = TimelineFile::open("/dev/full", "job");
  EXPECT_NE(opened.status().message().find("/dev/full: No space left"), std::string::npos);
}

TEST(TimelineLines, NumbersAreWhole) {
  const auto us = [](int64_t ns) {
    std::string text;
    append_us(text, ns);
    return text;
  };
  EXPECT_EQ(us(0), "0.000");
  EXPECT_EQ(us(1'234'567'890'123'456'789), "1234567890123456.789");
  EXPECT_EQ(us(1'002), "1.002");
  EXPECT_EQ(us(-5), "-0.005");
  EXPECT_EQ(us(-1'500), "-1.500");
}

TEST(TimelineLines, OrdersOfTwoKindsAreToldApart) {
  EXPECT_EQ(operation_arguments((uint64_t{1} << 63) | 4, 0), "\"operation\":\"b4\"");
  EXPECT_EQ(operation_arguments(4, 3), "\"operation\":\"4\",\"process_set\":3");
}

}  // namespace
}  // namespace rueda::agent
