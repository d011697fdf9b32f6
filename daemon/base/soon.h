// Work that a loop does a little later, at the end of its turn. A handler of Asio's would do as
// well, but each batch of those costs a system call: Asio asks the kernel for news before it runs
// what was posted.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace rueda {

// The queue of one loop, and of the one thread that runs it.
class Soon {
 public:
  using Work = std::function<void()>;

  // `io` outlives the object.
  explicit Soon(boost::asio::io_context& io) : io_(io) {}
  Soon(const Soon&) = delete;
  Soon& operator=(const Soon&) = delete;

  // Makes `soon` the queue of the calling thread while the object lives. Whoever does so runs the
  // queue. What is left at the end is posted to the io_context.
  class Use {
   public:
    explicit Use(Soon& soon) : soon_(soon), before_(std::exchange(of_thread_, &soon)) {}
    ~Use() {
      of_thread_ = before_;
      soon_.post_rest();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Soon& soon_;
    Soon* const before_;
  };

  // Has `work` run on the loop of `io`, never before this returns, and after what was given before
  // by the same thread in this way. May be called on any thread: it posts to `io` where the caller
  // is not on that loop, or nobody runs its queue.
  template <class Function>
  static void run(boost::asio::io_context& io, Function work) {
    if (of_thread_ == nullptr || &of_thread_->io_ != &io) {
      boost::asio::post(io, std::move(work));
      return;
    }
    // An io_context that waits for nothing else must not end.
    io.get_executor().on_work_started();
    of_thread_->queue_.emplace_back(std::move(work));
  }

  bool is_empty() const { return queue_.empty(); }

  // Runs the oldest work. Returns false if there is none. What the work throws is passed on, and
  // the rest stays.
  bool run_one() {
    if (queue_.empty()) return false;
    const Counted counted{io_};
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    work();
    return true;
  }

 private:
  // Says at its end that the io_context has one thing less to wait for.
  struct Counted {
    boost::asio::io_context& io;
    ~Counted() { io.get_executor().on_work_finished(); }
  };

  void post_rest() {
    for (; !queue_.empty(); queue_.pop_front()) {
      const Counted counted{io_};
      boost::asio::post(io_, std::move(queue_.front()));
    }
  }

  static inline constinit thread_local Soon* of_thread_ = nullptr;

  boost::asio::io_context& io_;
  std::deque<Work> queue_;
};

}  // namespace rueda
