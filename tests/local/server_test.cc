// Tests the server of calls with clients that the test plays, byte by byte, over socket pairs.
#include "daemon/local/server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "daemon/local/wire.h"
#include "tests/support/processes.h"

namespace rueda::local {
namespace {

using security::Action;
using security::Caller;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Frame {
  Header header;
  std::string payload;
};

// One end of a connection.
class Peer {
 public:
  explicit Peer(UniqueFd socket) : socket_(std::move(socket)) {}

  // Sends what the socket takes now, and returns how much that is.
  size_t send(const std::string& bytes) const {
    const ssize_t sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  void read() {
    std::vector<char> bytes(1 << 16);
    for (;;) {
      const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      is_closed_ |= got == 0 || (got < 0 && errno == ECONNRESET);
      if (got <= 0) return;
      input_.append(bytes.data(), static_cast<size_t>(got));
    }
  }
  bool has_frame() {
    read();
    return input_.size() >= kHeaderBytes &&
           input_.size() >= kHeaderBytes + decode(input_).value().bytes;
  }
  Frame take() {
    const Header header = decode(input_).value();
    Frame frame{header, input_.substr(kHeaderBytes, header.bytes)};
    input_.erase(0, kHeaderBytes + header.bytes);
    return frame;
  }
  bool is_closed() {
    read();
    return is_closed_;
  }
  void close() { socket_.reset(); }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  std::string input_;
  bool is_closed_ = false;
};

// What the server tells of the streams of kRunJob.
struct Heard {
  std::vector<std::string> messages;
  int ends = 0;
};

class LocalTest : public ::testing::Test {
 protected:
  class StreamOfTest final : public Receiver {
   public:
    explicit StreamOfTest(Heard& heard) : heard_(heard) {}
    void on_message(const std::string& message) override { heard_.messages.push_back(message); }
    void on_end() override { ++heard_.ends; }

   private:
    Heard& heard_;
  };

  void start(const Options& options = {}) {
    server_.emplace(loop_, options);
    server_->set_on_refused([this](const Caller& caller, const std::string& why) {
      refused_.push_back(caller.principal.label() + ": " + why);
    });
    server_->serve(Action::kDescribe,
                   {false, [this](const std::shared_ptr<Call>& call, const std::string& request) {
                      begun_.push_back(call->caller().principal.label());
                      if (request == "throw") throw std::bad_alloc();
                      call->send(request);
                      call->finish({});
                    }});
    const auto keep = [this](const std::shared_ptr<Call>& call, const std::string&) {
      begun_.push_back(call->caller().principal.label());
      calls_.push_back(call);
      call->set_on_gone([this] { ++gone_; });
    };
    server_->serve(Action::kReadStatus, {true, keep});
    server_->serve(Action::kProbeNodes, {false, keep});
    server_->serve(Action::kRunJob,
                   {false, [this](const std::shared_ptr<Call>& call, const std::string& request) {
                      calls_.push_back(call);
                      heard_.messages.push_back(request);
                      call->set_receiver(std::make_shared<StreamOfTest>(heard_));
                    }});
  }
  Peer connect(const Principal& principal = Principal::user(1000),
               Caller::Kind kind = Caller::Kind::kOperator) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    Caller caller;
    caller.kind = kind;
    caller.principal = principal;
    server_->adopt(UniqueFd(ends[0]), caller);
    return Peer(UniqueFd(ends[1]));
  }
  void pump(milliseconds time = milliseconds(2)) {
    loop_.restart();
    time.count() == 0 ? loop_.poll() : loop_.run_for(time);
  }
  void pump_until(const std::function<bool()>& condition, const char* what) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << what;
      pump(milliseconds(1));
    }
  }
  Frame receive(Peer& peer) {
    pump_until([&] { return peer.has_frame() || peer.is_closed(); }, "a frame");
    return peer.has_frame() ? peer.take() : Frame{};
  }
  void expect_status(Peer& peer, CallCode code, const std::string& text) {
    const Frame frame = receive(peer);
    EXPECT_EQ(frame.header.kind, Kind::kStatus);
    EXPECT_EQ(static_cast<CallCode>(frame.header.code), code);
    EXPECT_THAT(frame.payload, HasSubstr(text));
  }
  // Expects that what the client has sent is refused, and the connection closed.
  void expect_refused(Peer& peer, CallCode code, const std::string& text) {
    const size_t before = refused_.size();
    expect_status(peer, code, text);
    pump_until([&] { return peer.is_closed(); }, "the end of the connection");
    ASSERT_EQ(refused_.size(), before + 1) << text;
    EXPECT_THAT(refused_.back(), HasSubstr(text));
  }
  void expect_echo(Peer& peer, const std::string& text) {
    const Frame reply = receive(peer);
    EXPECT_EQ(reply.header.kind, Kind::kMessage);
    EXPECT_EQ(reply.payload, text);
    expect_status(peer, CallCode::kOk, "");
  }

  boost::asio::io_context loop_{1};
  std::vector<std::string> refused_;
  std::vector<std::string> begun_;
  std::deque<std::shared_ptr<Call>> calls_;
  Heard heard_;
  int gone_ = 0;
  std::optional<Server> server_;
};

TEST_F(LocalTest, CallsComeOneAfterTheOther) {
  start();
  Peer peer = connect();
  for (const char* text : {"one", "", "three"}) {
    peer.send(make_frame(Method::kDescribe, text));
    expect_echo(peer, text);
  }
  EXPECT_TRUE(refused_.empty());
}

TEST_F(LocalTest, CallsThatComeAtOnceAreAnsweredInOrder) {
  start();
  Peer peer = connect();
  std::string all;
  for (int i = 0; i < 50; ++i) all += make_frame(Method::kDescribe, std::to_string(i));
  EXPECT_EQ(peer.send(all), all.size());
  for (int i = 0; i < 50; ++i) expect_echo(peer, std::to_string(i));
}

TEST_F(LocalTest, FramesMayComeByteByByte) {
  start();
  Peer peer = connect();
  for (const char byte : make_frame(Method::kDescribe, "slow")) {
    peer.send(std::string(1, byte));
    pump(milliseconds(0));
  }
  expect_echo(peer, "slow");
}

TEST_F(LocalTest, WhatIsNoFrameIsRefused) {
  start();
  for (const std::string& garbage : {std::string("RUDX0123456789abcdef"), std::string(64, '\0'),
                                     make_frame(Kind::kMessage, 0, "x"),
                                     make_frame(Kind::kEnd, 0, ""), make_frame(CallStatus{})}) {
    Peer peer = connect();
    peer.send(garbage);
    expect_refused(peer, CallCode::kInvalidArgument, "");
  }
  Peer peer = connect();
  peer.send(make_frame(static_cast<Method>(999), ""));
  expect_refused(peer, CallCode::kUnimplemented, "no method with the number 999: upgrade it");
  Peer other = connect();
  other.send(make_frame(Method::kEndJob, ""));
  expect_refused(other, CallCode::kUnimplemented, "no method with the number 10");
}

TEST_F(LocalTest, AnotherVersionIsToldBoth) {
  start();
  Peer peer = connect();
  std::string frame = make_frame(Method::kDescribe, "");
  frame[4] = 9;
  peer.send(frame);
  expect_refused(peer, CallCode::kFailedPrecondition, "the program speaks version 9");
  EXPECT_THAT(refused_.back(), HasSubstr("version 1: upgrade the older of the two"));
}

TEST_F(LocalTest, WhatIsTooLongIsRefusedBeforeItComes) {
  start();
  Peer peer = connect();
  const auto header = encode({Kind::kCall, static_cast<uint16_t>(Method::kDescribe),
                              static_cast<uint32_t>(kMaxRequestBytes) + 1});
  peer.send({header.data(), header.size()});
  expect_refused(peer, CallCode::kResourceExhausted, "a request of 65537 bytes");
  Peer launcher = connect();
  const auto of_job = encode({Kind::kCall, static_cast<uint16_t>(Method::kRun), 0xffffffff});
  launcher.send({of_job.data(), of_job.size()});
  expect_refused(launcher, CallCode::kResourceExhausted, "a request of 4294967295 bytes");
}

TEST_F(LocalTest, ARegistrationMayHoldAPlan) {
  start();
  Peer peer = connect();
  const std::string plan(kMaxRegistrationBytes, 'p');
  const std::string frame = make_frame(Method::kRun, plan);
  size_t sent = 0;
  pump_until(
      [&] {
        sent += peer.send(frame.substr(sent, 1 << 20));
        return sent == frame.size();
      },
      "room for it");
  pump_until([&] { return !heard_.messages.empty(); }, "the registration");
  EXPECT_EQ(heard_.messages[0], plan);
}

TEST_F(LocalTest, WhoMayNotCallIsRefused) {
  start();
  Peer peer = connect(Principal::named("team-a"), Caller::Kind::kUser);
  peer.send(make_frame(Method::kProbe, ""));
  expect_refused(peer, CallCode::kPermissionDenied, "a probe takes the network of all nodes");
  EXPECT_THAT(refused_.back(), HasSubstr("team-a: "));
  EXPECT_TRUE(calls_.empty());
}

TEST_F(LocalTest, HalfAFrameIsWaitedForWithABound) {
  Options options;
  options.frame_timeout = milliseconds(30);
  start(options);
  const std::string frame = make_frame(Method::kDescribe, "half");
  for (const size_t bytes : {size_t{1}, kHeaderBytes - 1, kHeaderBytes, frame.size() - 1}) {
    Peer peer = connect();
    peer.send(frame.substr(0, bytes));
    expect_refused(peer, CallCode::kDeadlineExceeded, "a message has begun, and not ended");
  }
  Peer launcher = connect();
  launcher.send(make_frame(Method::kRun, "job"));
  pump_until([&] { return !calls_.empty(); }, "the call");
  calls_[0]->next();
  pump(milliseconds(60));
  EXPECT_FALSE(launcher.is_closed()) << "a stream may be silent";
  launcher.send("R");
  expect_refused(launcher, CallCode::kDeadlineExceeded, "a message has begun");
  EXPECT_EQ(heard_.ends, 1);
}

TEST_F(LocalTest, WhoSaysNothingIsClosedAfterAWhile) {
  Options options;
  options.idle_timeout = milliseconds(30);
  start(options);
  Peer silent = connect();
  Peer once = connect();
  once.send(make_frame(Method::kDescribe, "x"));
  expect_echo(once, "x");
  for (Peer* peer : {&silent, &once}) {
    pump_until([&] { return peer->is_closed(); }, "the end of the connection");
  }
  EXPECT_TRUE(refused_.empty());
}

TEST_F(LocalTest, ACallWaitsForItsAnswerForAsLongAsItTakes) {
  Options options;
  options.idle_timeout = options.frame_timeout = milliseconds(20);
  start(options);
  Peer peer = connect();
  peer.send(make_frame(Method::kProbe, ""));
  pump_until([&] { return !calls_.empty(); }, "the call");
  pump(milliseconds(80));
  calls_[0]->send("late");
  calls_[0]->finish({});
  expect_echo(peer, "late");
}

TEST_F(LocalTest, WhatAServiceThrowsEndsTheCallAlone) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kDescribe, "throw"));
  expect_status(peer, CallCode::kResourceExhausted, "the daemon cannot serve this: std::bad_alloc");
  peer.send(make_frame(Method::kDescribe, "again"));
  expect_echo(peer, "again");
}

TEST_F(LocalTest, AServiceRefusesWhatItCannotRead) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kProbe, "?"));
  pump_until([&] { return !calls_.empty(); }, "the call");
  calls_[0]->refuse({CallCode::kInvalidArgument, "that is none"});
  expect_refused(peer, CallCode::kInvalidArgument, "that is none");
}

TEST_F(LocalTest, WhoGoesBeforeTheAnswerIsTold) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kProbe, ""));
  pump_until([&] { return !calls_.empty(); }, "the call");
  EXPECT_EQ(gone_, 0);
  peer.close();
  pump_until([&] { return gone_ == 1; }, "the end of the client");
  calls_[0]->send("nobody hears it");
  calls_[0]->finish({});
  pump();
  Peer dies = connect();
  dies.send(make_frame(Method::kDescribe, "whole").substr(0, 18));
  pump();
  dies.close();
  pump();
  EXPECT_TRUE(refused_.empty());
}

TEST_F(LocalTest, WhoHasGoneIsNotCalledAnyMore) {
  start();
  Peer first = connect();
  first.send(make_frame(Method::kGetStatus, ""));
  pump_until([&] { return calls_.size() == 1; }, "the first call");
  std::vector<Peer> others;
  for (int i = 0; i < 5; ++i) {
    others.push_back(connect());
    others.back().send(make_frame(Method::kGetStatus, ""));
  }
  Peer last = connect(Principal::user(1001));
  last.send(make_frame(Method::kGetStatus, ""));
  pump(milliseconds(10));
  others.clear();
  pump(milliseconds(10));
  calls_[0]->finish({CallCode::kNotFound, "x"});
  pump_until([&] { return calls_.size() == 2; }, "the last call");
  EXPECT_THAT(begun_, ElementsAre("user 1000", "user 1001"));
}

TEST_F(LocalTest, CallsInTurnAreThosePrincipalsTakeTurnsWith) {
  start();
  std::vector<Peer> peers;
  for (const uid_t uid : {1u, 1u, 1u, 1u, 2u, 3u}) {
    peers.push_back(connect(Principal::user(uid)));
    peers.back().send(make_frame(Method::kGetStatus, ""));
    pump();
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    pump_until([&] { return calls_.size() == i + 1; }, "the next call");
    pump();
    EXPECT_EQ(calls_.size(), i + 1) << "one at a time";
    calls_.back()->finish({});
  }
  EXPECT_THAT(begun_, ElementsAre("user 1", "user 1", "user 2", "user 3", "user 1", "user 1"));
}

// One handler of the loop begins at most so many calls of a principal.
TEST_F(LocalTest, AFloodOfCallsLeavesTurnsToOthers) {
  start();
  std::string flood;
  for (int i = 0; i < 200; ++i) flood += make_frame(Method::kDescribe, "");
  std::vector<Peer> many;
  for (int i = 0; i < 20; ++i) {
    many.push_back(connect(Principal::user(1)));
    many.back().send(flood);
  }
  pump(milliseconds(1));
  begun_.clear();
  Peer one = connect(Principal::user(2));
  one.send(make_frame(Method::kDescribe, "hello"));
  expect_echo(one, "hello");
  const auto mine = std::find(begun_.begin(), begun_.end(), "user 2");
  ASSERT_NE(mine, begun_.end());
  EXPECT_LT(mine - begun_.begin(), 200) << "of 4,000";
}

// --- Streams

TEST_F(LocalTest, AStreamHearsOneMessageAtATime) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kRun, "job") + make_frame(Kind::kMessage, 0, "one") +
            make_frame(Kind::kMessage, 0, "two") + make_frame(Kind::kEnd, 0, ""));
  pump_until([&] { return !calls_.empty(); }, "the call");
  pump();
  EXPECT_THAT(heard_.messages, ElementsAre("job"));
  calls_[0]->send("welcome");
  EXPECT_EQ(receive(peer).payload, "welcome");
  for (const char* message : {"one", "two"}) {
    calls_[0]->next();
    pump_until([&] { return heard_.messages.back() == message; }, message);
    pump();
    EXPECT_EQ(heard_.messages.back(), message);
  }
  EXPECT_EQ(heard_.ends, 0);
  calls_[0]->next();
  pump_until([&] { return heard_.ends == 1; }, "the end");
  calls_[0]->send("goodbye");
  calls_[0]->finish({});
  EXPECT_EQ(receive(peer).payload, "goodbye");
  expect_status(peer, CallCode::kOk, "");
  pump_until([&] { return peer.is_closed(); }, "the end of the connection");
  EXPECT_EQ(heard_.ends, 1);
}

// What a launcher said last, as that a rank has failed, is worth hearing.
TEST_F(LocalTest, WhatWasSaidBeforeTheEndIsHeard) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kRun, "job") + make_frame(Kind::kMessage, 0, "failed") + "RUD");
  pump_until([&] { return !calls_.empty(); }, "the call");
  peer.close();
  pump();
  EXPECT_EQ(heard_.ends, 0);
  calls_[0]->next();
  pump_until([&] { return heard_.messages.back() == "failed"; }, "the message");
  EXPECT_EQ(heard_.ends, 0);
  calls_[0]->next();
  pump_until([&] { return heard_.ends == 1; }, "the end");
}

TEST_F(LocalTest, WhatDoesNotBelongToAStreamEndsIt) {
  start();
  const std::string wrong[] = {
      make_frame(Method::kDescribe, ""),
      make_frame(CallStatus{}),
      "garbage garbage garbage",
      make_frame(Kind::kMessage, 0, std::string(kMaxRequestBytes + 1, 'x')).substr(0, 1000),
      make_frame(Kind::kEnd, 0, "x"),
      make_frame(Kind::kEnd, 0, "") + make_frame(Kind::kMessage, 0, "")};
  for (size_t i = 0; i < std::size(wrong); ++i) {
    Peer peer = connect();
    peer.send(make_frame(Method::kRun, "job"));
    pump_until([&] { return calls_.size() == i + 1; }, "the call");
    calls_.back()->next();
    peer.send(wrong[i]);
    pump_until([&] { return peer.is_closed(); }, "the end of the connection");
    EXPECT_EQ(refused_.size(), i + 1);
    EXPECT_EQ(heard_.ends, static_cast<int>(i) + 1);
    calls_.back()->finish({});
  }
}

TEST_F(LocalTest, AStreamWhoseClientTakesNothingIsEnded) {
  Options options;
  options.max_stream_bytes = 1 << 20;
  start(options);
  Peer peer = connect();
  peer.send(make_frame(Method::kRun, "job"));
  pump_until([&] { return !calls_.empty(); }, "the call");
  int sent = 0;
  while (heard_.ends == 0 && sent < 1000) {
    calls_[0]->send(std::string(10'000, 'x'));
    ++sent;
    pump(milliseconds(0));
  }
  EXPECT_EQ(heard_.ends, 1);
  EXPECT_GT(sent, 100) << "a megabyte waits, and what the socket holds";
  ASSERT_EQ(refused_.size(), 1u);
  EXPECT_THAT(refused_[0], HasSubstr("it takes nothing of what its job tells it"));
  pump_until([&] { return peer.is_closed(); }, "the end of the connection");
}

TEST_F(LocalTest, WhatWaitsForAClientIsKnown) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kRun, "job"));
  pump_until([&] { return !calls_.empty(); }, "the call");
  for (int i = 0; i < 100; ++i) calls_[0]->send(std::string(10'000, 'x'));
  EXPECT_EQ(calls_[0]->waiting_messages(), 100u);
  EXPECT_EQ(calls_[0]->waiting_bytes(), 100u * (10'000 + kHeaderBytes));
  pump();
  EXPECT_LT(calls_[0]->waiting_messages(), 100u);
  EXPECT_GT(calls_[0]->waiting_messages(), 10u);
  pump_until(
      [&] {
        if (peer.has_frame()) peer.take();
        return calls_[0]->waiting_messages() == 0;
      },
      "all to be taken");
  EXPECT_EQ(calls_[0]->waiting_bytes(), 0u);
}

// --- Bounds

TEST_F(LocalTest, WhoTakesNoAnswersIsNotReadFromAndThenClosed) {
  Options options;
  options.frame_timeout = milliseconds(200);
  options.max_reply_bytes = 64 << 10;
  start(options);
  Peer peer = connect();
  const std::string frame = make_frame(Method::kDescribe, std::string(60'000, 'x'));
  size_t sent = 0;
  const auto until = std::chrono::steady_clock::now() + milliseconds(100);
  while (std::chrono::steady_clock::now() < until) {
    const size_t now = peer.send(frame.substr(sent % frame.size()));
    sent += now;
    pump(milliseconds(1));
  }
  EXPECT_LT(sent, size_t{4} << 20) << "the client is held up";
  EXPECT_LT(begun_.size(), 30u);
  pump_until([&] { return !refused_.empty(); }, "the end of its time");
  EXPECT_THAT(refused_[0], HasSubstr("it has not taken an answer in 1 s"));
  pump();
  EXPECT_EQ(peer.send(frame), 0u) << "the connection is closed";
}

TEST_F(LocalTest, APrincipalsRepliesWaitForEachOther) {
  Options options;
  options.max_principal_bytes = 1 << 20;
  start(options);
  std::vector<Peer> peers;
  for (int i = 0; i < 4; ++i) {
    peers.push_back(connect(Principal::user(1)));
    peers.back().send(make_frame(Method::kProbe, ""));
    pump_until([&] { return calls_.size() == peers.size(); }, "the call");
  }
  for (int i = 0; i < 4; ++i) {
    calls_[static_cast<size_t>(i)]->send(std::string(1 << 20, 'x'));
    calls_[static_cast<size_t>(i)]->finish({});
  }
  pump(milliseconds(10));
  Peer waits = connect(Principal::user(1));
  waits.send(make_frame(Method::kDescribe, "waits"));
  Peer other = connect(Principal::user(2));
  other.send(make_frame(Method::kDescribe, "does not"));
  expect_echo(other, "does not");
  EXPECT_FALSE(waits.has_frame());
  for (Peer& peer : peers) {
    EXPECT_EQ(receive(peer).payload.size(), size_t{1} << 20);
    expect_status(peer, CallCode::kOk, "");
  }
  expect_echo(waits, "waits");
}

TEST_F(LocalTest, APrincipalsLongRequestsWaitForEachOther) {
  Options options;
  options.max_principal_bytes = 1 << 20;
  start(options);
  const std::string frame = make_frame(Method::kRun, std::string(1 << 20, 'p'));
  Peer first = connect(Principal::user(1));
  first.send(frame.substr(0, 1000));
  pump();
  Peer second = connect(Principal::user(1));
  const auto send_all = [&](Peer& peer, size_t sent) {
    const size_t before = heard_.messages.size();
    const auto give_up = std::chrono::steady_clock::now() + milliseconds(300);
    while (heard_.messages.size() == before && std::chrono::steady_clock::now() < give_up) {
      sent += peer.send(frame.substr(sent));
      pump(milliseconds(1));
    }
    return heard_.messages.size() > before;
  };
  EXPECT_FALSE(send_all(second, 0)) << "the first one's is under way";
  Peer other = connect(Principal::user(2));
  EXPECT_TRUE(send_all(other, 0)) << "of another principal";
  first.close();
  pump_until([&] { return heard_.messages.size() == 1; }, "the other's");
  size_t taken = 0;
  pump_until(
      [&] {
        taken += second.send(std::string(4096, 'p'));
        return heard_.messages.size() == 2;
      },
      "the second one's");
}

// A thousand connections that have begun the longest request cost what they have sent.
TEST_F(LocalTest, ConnectionsCostWhatTheySend) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit most = before;
  most.rlim_cur = most.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &most), 0);
  const size_t count = std::min<size_t>(1'000, most.rlim_cur / 2 - 100);
  start();
  std::vector<Peer> peers;
  const auto header =
      encode({Kind::kCall, static_cast<uint16_t>(Method::kRun), kMaxRegistrationBytes});
  const size_t used = ::mallinfo2().uordblks;
  for (size_t i = 0; i < count; ++i) {
    peers.push_back(connect(Principal::user(static_cast<uid_t>(i % 5))));
    peers.back().send({header.data(), header.size()});
    pump(milliseconds(0));
  }
  EXPECT_LT(::mallinfo2().uordblks, used + count * (8 << 10));
  Peer one = connect(Principal::user(3));
  one.send(make_frame(Method::kDescribe, "still here"));
  expect_echo(one, "still here");
  const size_t open = open_descriptors();
  peers.clear();
  pump_until([&] { return open_descriptors() <= open - 2 * count; }, "all to be closed");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

// --- The end

TEST_F(LocalTest, TheEndWaitsForCalls) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kProbe, ""));
  Peer idle = connect();
  pump_until([&] { return !calls_.empty(); }, "the call");
  bool is_over = false;
  server_->stop([&] { is_over = true; });
  pump_until([&] { return idle.is_closed(); }, "the end of the idle connection");
  pump(milliseconds(20));
  EXPECT_FALSE(is_over);
  calls_[0]->send("just in time");
  calls_[0]->finish({});
  expect_echo(peer, "just in time");
  pump_until([&] { return is_over; }, "the end");
}

TEST_F(LocalTest, TheEndBreaksOffWhatLastsTooLong) {
  Options options;
  options.stop_timeout = milliseconds(30);
  start(options);
  Peer peer = connect();
  peer.send(make_frame(Method::kRun, ""));
  Peer other = connect();
  other.send(make_frame(Method::kProbe, ""));
  pump_until([&] { return calls_.size() == 2; }, "the calls");
  bool is_over = false;
  server_->stop([&] { is_over = true; });
  pump_until([&] { return is_over; }, "the end");
  EXPECT_EQ(heard_.ends, 1);
  EXPECT_EQ(gone_, 1);
  EXPECT_TRUE(peer.is_closed());
  EXPECT_TRUE(other.is_closed());
  for (const auto& call : calls_) call->finish({});
  Peer late = connect();
  pump();
  EXPECT_TRUE(late.is_closed());
}

TEST_F(LocalTest, AServerMayGoAtAnyTime) {
  start();
  Peer peer = connect();
  peer.send(make_frame(Method::kRun, ""));
  Peer in_turn = connect();
  in_turn.send(make_frame(Method::kGetStatus, ""));
  Peer waits = connect();
  waits.send(make_frame(Method::kGetStatus, ""));
  pump_until([&] { return calls_.size() == 2; }, "the calls");
  calls_[1]->send("x");
  calls_[1]->finish({});
  server_.reset();
  for (const auto& call : calls_) {
    call->send("x");
    call->next();
  }
  pump();
  EXPECT_TRUE(peer.is_closed());
}

}  // namespace
}  // namespace rueda::local
