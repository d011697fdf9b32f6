// A connection over which calls come, one at a time. It belongs to the server's loop. It has more
// than 20 fields because it reads, answers and writes at the same time, and each may end by itself.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/fd.h"
#include "daemon/base/loop_gate.h"
#include "daemon/base/turns.h"
#include "daemon/local/budget.h"
#include "daemon/local/call.h"
#include "daemon/local/line.h"
#include "daemon/local/server.h"
#include "daemon/local/wire.h"

namespace rueda::local {

// What the connections of one principal share.
struct Party {
  std::string name;
  std::shared_ptr<Turns::Party> turns;
  Budget requests;  // Long ones, that come in.
  Budget replies;   // Those that wait to be taken.
};

class Connection;

// The server, as its connections see it. They do not touch it once they are closed.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual const Options& options() const = 0;
  virtual const std::shared_ptr<LoopGate>& gate() const = 0;
  virtual const std::shared_ptr<Line>& line() const = 0;
  struct Served {
    security::Action action;
    Service service;
  };
  // Returns null if nobody serves the method.
  virtual const Served* find(Method method) const = 0;
  virtual bool is_stopping() const = 0;
  virtual void on_refused(const security::Caller& caller, const std::string& why) = 0;
  virtual void on_call_ended() = 0;
  // The connection is forgotten.
  virtual void on_closed(Connection& connection) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::io_context& loop, ConnectionOwner& owner, UniqueFd socket,
             security::Caller caller, std::shared_ptr<Party> party);

  void start() { go_on(); }
  bool has_call() const { return call_ != nullptr; }
  // Closes the connection; the call under way is told that its client has gone. The call is
  // idempotent.
  void close();

 private:
  class CallOf;
  struct Outgoing {
    std::string bytes;
    size_t sent_bytes = 0;
    std::shared_ptr<CallOf> call;  // Whose message it is; null for a status.
    bool is_charged = false;       // To the principal's replies.
  };
  // What the other side has to do in time.
  enum class Awaited { kNothing, kFrame, kAnswerTaken, kCall };

  bool is_stream() const { return receiver_ != nullptr; }
  // Calls `work`; what it throws costs the connection.
  void guarded(const std::function<void()>& work);

  // Does what can be done now: takes the next frame, or waits for it.
  void go_on();
  void read_more();
  void on_readable();
  void on_end_of_input();
  // Looks whether the frame that begins may come. If not, it is refused. Returns false if nothing
  // is to be done now.
  bool take_header();
  CallStatus check(const Header& header) const;
  CallStatus check_call(const Header& header) const;
  // Waits until the principal has room for a request of that size. Returns false if it has none.
  bool has_room_for(const Header& header);
  // Handles the frame that has come, in the principal's turn.
  void handle();
  void begin_call(Method method, std::string request);
  // Begins the call once the principal has room for the reply, in the line if it is taken in turn.
  void begin_with_room(const Service& service, std::string request);
  void hand_over(const Service& service, const std::string& request);

  // These are for the call, on the loop.
  void queue(const std::shared_ptr<CallOf>& call, std::string frame);
  void end_call(const CallOf& call, const CallStatus& status, bool is_refused);
  void on_handled(const CallOf& call);

  void refuse(const CallStatus& status);
  // Ends the call under way, sends a status, and closes the connection.
  void reject(const CallStatus& status);
  void put_out(Outgoing outgoing);
  void flush();
  void wait_writable();
  // Lets go of the call under way. If its client has gone, it is told.
  void let_go(bool is_gone);
  void release_request();

  Awaited awaited() const;
  // Sets the timer for what is awaited now. The time that has begun goes on, unless something has
  // moved.
  void watch();
  void on_timeout(Awaited awaited);

  ConnectionOwner& owner_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  const security::Caller caller_;
  const std::shared_ptr<Party> party_;

  std::string input_;             // What has been read, and not been handled.
  std::optional<Header> header_;  // Of the frame that `input_` begins with, if it may come.
  size_t charged_request_bytes_ = 0;
  std::deque<Outgoing> output_;
  size_t output_bytes_ = 0;
  std::shared_ptr<CallOf> call_;        // The call under way.
  std::shared_ptr<Receiver> receiver_;  // Of a stream.
  std::function<void()> on_gone_;
  Awaited timed_ = Awaited::kNothing;  // What the timer is set for.
  bool has_moved_ = false;             // Since then.
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool is_busy_ = false;  // A frame waits for its turn, or is being handled.
  bool has_said_end_ = false;
  bool has_ended_ = false;   // Nothing more can be read.
  bool is_closing_ = false;  // Once what is left to write has been written.
  bool is_closed_ = false;
};

}  // namespace rueda::local
