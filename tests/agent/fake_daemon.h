// Stands in for ruedad in tests of its clients: serves agent.proto and admin.proto with the replies
// that the test sets, and keeps the requests that it gets.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "daemon/local/server.h"
#include "rueda/v1/admin.pb.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::test {

class FakeDaemon {
 public:
  // Begins to serve at once. `socket` is a path or @name.
  FakeDaemon(std::string socket, std::string node_id);
  ~FakeDaemon();

  const std::string& socket() const { return socket_; }
  // Answers every job from now on by a failure with this text instead of registering it.
  void refuse_jobs(const std::string& text);
  // Waits for a job and tells its launcher that it has failed.
  void fail_job(const std::string& text, int origin_rank);

  // These wait up to 20 s for the event. They return an empty or default value if it did not come.
  std::vector<v1::JobSpec> wait_for_jobs(size_t count);
  v1::RankFailed wait_for_rank_failed();
  bool wait_for_job_end();

  // The daemon's description of itself, except its name, version and ports.
  v1::DescribeReply describe_reply;
  // The replies of the admin service.
  v1::GetStatusReply status_reply;
  v1::ListJobsReply jobs_reply;
  v1::ListPlansReply plans_reply;
  v1::ListPeersReply peers_reply;
  v1::ListStallsReply stalls_reply;

 private:
  class JobStream;

  bool wait_until(const std::function<bool()>& is_true);
  void serve();
  // Answers such calls by this reply.
  template <class Request, class Reply>
  void answer(security::Action action, const Reply& reply);
  void accept();
  void on_job(const std::shared_ptr<local::Call>& call, const v1::JobSpec& job);

  const std::string socket_;
  const std::string node_id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string refusal_;
  std::vector<v1::JobSpec> jobs_;
  std::vector<v1::RankFailed> failed_ranks_;
  std::shared_ptr<local::Call> running_;
  int ended_count_ = 0;
  boost::asio::io_context loop_{1};
  boost::asio::local::stream_protocol::acceptor acceptor_{loop_};
  local::Server server_{loop_};
  std::thread thread_;
};

}  // namespace rueda::test
