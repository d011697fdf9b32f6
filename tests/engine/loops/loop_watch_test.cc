#include "daemon/engine/loops/loop_watch.h"

#include <chrono>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

constexpr std::chrono::seconds kAtOnce{0};
constexpr std::chrono::hours kLong{1};

TEST(LoopWatch, TellsWhichLoopStandsStillAndThatItTurnsAgain) {
  boost::asio::io_context turns;
  boost::asio::io_context stands;
  const auto into = [](boost::asio::io_context& io) {
    return [&io](std::function<void()> work) { boost::asio::post(io, std::move(work)); };
  };
  const auto turn = [](boost::asio::io_context& io) {
    io.restart();
    return io.poll();
  };
  LoopWatch watch({{"control", into(turns)}, {"data", into(stands)}});
  EXPECT_EQ(watch.find_stalled(kAtOnce), "") << "asked for the first time";
  turn(turns);
  EXPECT_EQ(watch.find_stalled(kLong), "") << "it may be at work";
  turn(turns);
  EXPECT_EQ(watch.find_stalled(kAtOnce), "the data loop has not turned for 0 s");
  turn(turns);
  EXPECT_GT(watch.ask()[1].count(), 0);
  turn(turns);
  EXPECT_EQ(turn(stands), 1u) << "who stands still is asked once";
  EXPECT_EQ(watch.find_stalled(kAtOnce), "");
  turn(turns);
  turn(stands);
}

TEST(LoopWatch, AnAnswerMayComeWhenNobodyWaitsForItAnyMore) {
  boost::asio::io_context io;
  {
    LoopWatch watch({{"control", [&io](std::function<void()> work) {
                        boost::asio::post(io, std::move(work));
                      }}});
    watch.ask();
  }
  EXPECT_EQ(io.poll(), 1u);
}

}  // namespace
}  // namespace rueda::engine
