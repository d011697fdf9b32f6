// One run of an asynchronous kernel: from TensorFlow's call to the end of all operations that it
// submits to librueda. No thread waits meanwhile: librueda calls back (rueda_then).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/include/rueda/rueda.h"
#include "client/tensorflow/tf_abi.h"

namespace rueda::tensorflow {

// What the caller of a kernel passed in, as librueda reads it.
struct Input {
  const void* memory;
  TF_DataType type;
  std::vector<int64_t> dims;
  size_t bytes;
};

// A run is made by the kernel's function and ends itself: when nobody holds it any more it sets the
// outputs, or the error, and tells TensorFlow. It may be used by the thread that made it and by
// librueda's callbacks at the same time, except where a function says otherwise.
class Run {
 public:
  // What is done when an operation has ended well. It runs in librueda's thread of callbacks, so it
  // must not wait.
  using Step = std::function<void(const rueda_result& result)>;

  // `done` points to a std::function that is dead when the kernel's function has returned, so it is
  // copied (docs/decisions/0092-what-tensorflow-and-jax-carry.md). The maker holds the run.
  Run(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Returns the input at this place, whose memory lives as long as the run. Only the maker calls
  // it. After a failure it has no memory and no dimensions, and is_failed() is true.
  Input input(int place);

  // Makes the output at this place and returns its memory, of shared memory where there is some:
  // nothing is then copied out. `is_kept` says that the tensor may live as long as a model, so that
  // it is TensorFlow's own memory. Returns nullptr after a failure. Different places may be made
  // by different threads, after expect_outputs().
  void* make_output(int place, TF_DataType type, const std::vector<int64_t>& dims,
                    bool is_kept = false);
  // Says how many outputs there will be. The maker calls it before anything is submitted.
  void expect_outputs(size_t count) { outputs_.resize(count, nullptr); }

  // Memory for the numbers of rows that a rank tells to others. Only the maker may change its size,
  // before anything is submitted.
  std::vector<int64_t>& numbers() { return numbers_; }

  // Follows an operation to its end. `code` is what librueda's submission returned; if that is an
  // error the run fails. Otherwise `step`, if there is one, runs when the operation has ended well.
  void follow(int code, rueda_handle handle, Step step = {});

  // Fails the run; only the first failure counts. fail_by_librueda() takes the sentence of
  // librueda's last call in this thread.
  void fail(TF_Code code, const std::string& sentence);
  void fail_by_librueda(int error);
  bool is_failed() const { return failed_.load(std::memory_order_relaxed); }

  // Lets go of the run. Whoever is the last to do so ends it, in this call.
  void release();

 private:
  struct Followed {
    Run* run;
    Step step;
  };

  ~Run();
  static void on_end(rueda_handle handle, int error, const rueda_result* result, void* argument);
  void end();

  friend void take_back_callbacks();

  TF_OpKernelContext* context_;
  std::function<void()> done_;
  std::atomic<int> holds_{1};
  std::atomic<bool> failed_{false};
  TF_Code code_ = TF_OK;  // these two are written by whoever set failed_, and read by the last
  std::string sentence_;
  std::vector<TF_Tensor*> inputs_;
  std::vector<TF_Tensor*> outputs_;
  std::vector<int64_t> numbers_;
};

// Takes back all callbacks of runs in flight, which then never end. It is for the end of a program:
// what they would call is about to go.
void take_back_callbacks();

// Returns the size of an element, or 0 for types that librueda does not have.
size_t bytes_of(TF_DataType type);
rueda_dtype dtype_of(TF_DataType type);

}  // namespace rueda::tensorflow
