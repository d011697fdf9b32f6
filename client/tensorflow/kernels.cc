#include "client/tensorflow/kernels.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "client/include/rueda/rueda.h"
#include "client/tensorflow/attributes.h"
#include "client/tensorflow/run.h"
#include "client/tensorflow/tf_abi.h"

namespace rueda::tensorflow {
namespace {

constexpr size_t kMostDims = 8;  // librueda's

// Returns dimensions that librueda takes, with as many elements and rows: beyond the eighth they
// are multiplied into it.
std::vector<int64_t> merged(std::vector<int64_t> dims) {
  while (dims.size() > kMostDims) {
    dims[dims.size() - 2] *= dims.back();
    dims.pop_back();
  }
  return dims;
}

rueda_tensor tensor_of(const std::string& name, const Input& input, void* output,
                       const std::vector<int64_t>& dims, uint32_t process_set) {
  rueda_tensor tensor{};
  tensor.name = name.c_str();
  tensor.input = input.memory;
  tensor.output = output;
  tensor.shape = dims.data();
  tensor.ndim = static_cast<int32_t>(dims.size());
  tensor.dtype = dtype_of(input.type);
  tensor.process_set = process_set;
  return tensor;
}

// Returns whether the input has rows, that is, a first dimension. Otherwise the run fails.
bool has_rows(Run& run, const Input& input) {
  if (run.is_failed()) return false;
  if (!input.dims.empty()) return true;
  run.fail(TF_INVALID_ARGUMENT,
           "the tensor has no first dimension to be cut or joined; use tf.reshape(tensor, [1])");
  return false;
}

// Returns how many ranks the set has, or 0 after a failure.
int64_t size_of_set(Run& run, uint32_t process_set) {
  const int size = rueda_process_set_size(process_set);
  if (size < 0) run.fail_by_librueda(size);
  return size < 0 ? 0 : size;
}

// Returns the place of this rank among those of the set, or -1 after a failure.
int64_t place_in_set(Run& run, uint32_t process_set) {
  int32_t place = -1;
  const int error = rueda_process_set_rank(process_set, &place);
  if (error < 0) {
    run.fail_by_librueda(error);
  } else if (place < 0) {
    run.fail(TF_INVALID_ARGUMENT, "this rank is not in process set " + std::to_string(process_set));
  }
  return run.is_failed() ? -1 : place;
}

// Has all ranks of the set tell each other run.numbers(), of which each has as many; `numbers_of`
// gets them in the order of the ranks. `step` then goes on.
void exchange(Run& run, const std::string& name, int64_t* numbers_of, uint32_t process_set,
              Run::Step step) {
  const auto count = static_cast<int64_t>(run.numbers().size());
  const std::string sizes = name + ".sizes";
  rueda_tensor tensor{};
  tensor.name = sizes.c_str();
  tensor.input = run.numbers().data();
  tensor.output = numbers_of;
  tensor.shape = &count;
  tensor.ndim = 1;
  tensor.dtype = RUEDA_INT64;
  tensor.process_set = process_set;
  rueda_handle handle = 0;
  const int code = rueda_allgather_async(&tensor, nullptr, &handle);
  run.follow(code, handle, std::move(step));
}

// One all-reduce, or several as a group.
class Allreduce {
 public:
  explicit Allreduce(Attributes& attributes)
      : names_(attributes.strings("names")),
        group_(attributes.string("group")),
        options_(attributes.reduce_options()),
        process_set_(static_cast<uint32_t>(attributes.integer("process_set"))) {}

  void start(Run& run) const {
    const size_t count = names_.size();
    run.expect_outputs(count);
    std::vector<std::vector<int64_t>> dims;
    std::vector<rueda_tensor> tensors;
    for (size_t i = 0; i < count && !run.is_failed(); ++i) {
      const Input input = run.input(static_cast<int>(i));
      if (run.is_failed()) return;
      void* output = run.make_output(static_cast<int>(i), input.type, input.dims);
      dims.push_back(merged(input.dims));
      tensors.push_back(tensor_of(names_[i], input, output, dims.back(), process_set_));
    }
    if (run.is_failed()) return;
    rueda_handle handle = 0;
    const int code = group_.empty() ? rueda_allreduce_async(tensors.data(), &options_, &handle)
                                    : rueda_grouped_allreduce_async(group_.c_str(), tensors.data(),
                                                                    count, &options_, &handle);
    run.follow(code, handle);
  }

 private:
  std::vector<std::string> names_;
  std::string group_;  // "": one tensor, which is in no group
  rueda_reduce_options options_;
  uint32_t process_set_;
};

// Broadcasts of several tensors, beside each other.
class Broadcast {
 public:
  explicit Broadcast(Attributes& attributes)
      : names_(attributes.strings("names")),
        root_rank_(static_cast<int>(attributes.integer("root_rank"))),
        is_kept_(attributes.integer("is_kept") != 0),
        process_set_(static_cast<uint32_t>(attributes.integer("process_set"))) {}

  void start(Run& run) const {
    run.expect_outputs(names_.size());
    for (size_t i = 0; i < names_.size() && !run.is_failed(); ++i) {
      const Input input = run.input(static_cast<int>(i));
      if (run.is_failed()) return;
      void* output = run.make_output(static_cast<int>(i), input.type, input.dims, is_kept_);
      if (run.is_failed()) return;
      const std::vector<int64_t> dims = merged(input.dims);
      const rueda_tensor tensor = tensor_of(names_[i], input, output, dims, process_set_);
      rueda_handle handle = 0;
      const int code = rueda_broadcast_async(&tensor, root_rank_, &handle);
      run.follow(code, handle);
    }
  }

 private:
  std::vector<std::string> names_;
  int root_rank_;
  bool is_kept_;  // the results become the values of variables
  uint32_t process_set_;
};

// An all-gather. The ranks tell each other how many rows they have first; that is an output, too.
class Allgather {
 public:
  explicit Allgather(Attributes& attributes)
      : name_(attributes.string("tensor_name")),
        process_set_(static_cast<uint32_t>(attributes.integer("process_set"))) {}

  void start(Run& run) const {
    run.expect_outputs(2);
    const Input input = run.input(0);
    if (!has_rows(run, input)) return;
    const int64_t size = size_of_set(run, process_set_);
    if (run.is_failed()) return;
    auto* rows = static_cast<int64_t*>(run.make_output(1, TF_INT64, {size}));
    if (run.is_failed()) return;
    run.numbers() = {input.dims[0]};
    exchange(run, name_, rows, process_set_, [this, &run, input, rows, size](const rueda_result&) {
      gather(run, input, rows, size);
    });
  }

 private:
  void gather(Run& run, const Input& input, const int64_t* rows, int64_t size) const {
    std::vector<int64_t> output_dims = input.dims;
    output_dims[0] = std::accumulate(rows, rows + size, int64_t{0});
    void* output = run.make_output(0, input.type, output_dims);
    if (run.is_failed()) return;
    const std::vector<int64_t> dims = merged(input.dims);
    const rueda_tensor tensor = tensor_of(name_, input, output, dims, process_set_);
    rueda_handle handle = 0;
    const int code = rueda_allgather_async(&tensor, rows, &handle);
    run.follow(code, handle);
  }

  std::string name_;
  uint32_t process_set_;
};

// A reduce-scatter. Its second input has the numbers of rows that each rank gets, or no element:
// they are then as even as can be.
class Reducescatter {
 public:
  explicit Reducescatter(Attributes& attributes)
      : name_(attributes.string("tensor_name")),
        options_(attributes.reduce_options()),
        process_set_(static_cast<uint32_t>(attributes.integer("process_set"))) {}

  void start(Run& run) const {
    run.expect_outputs(1);
    const Input input = run.input(0);
    const Input rows_of = run.input(1);
    if (!has_rows(run, input)) return;
    const int64_t size = size_of_set(run, process_set_);
    const int64_t place = place_in_set(run, process_set_);
    if (run.is_failed()) return;
    const auto* rows = static_cast<const int64_t*>(rows_of.memory);
    const bool is_even = rows_of.bytes == 0;
    if (!is_even && rows_of.bytes != static_cast<size_t>(size) * sizeof(int64_t)) {
      run.fail(TF_INVALID_ARGUMENT, "a reducescatter needs one number of rows for each of the " +
                                        std::to_string(size) + " ranks");
      return;
    }
    std::vector<int64_t> output_dims = input.dims;
    output_dims[0] =
        is_even ? input.dims[0] / size + (place < input.dims[0] % size ? 1 : 0) : rows[place];
    void* output = run.make_output(0, input.type, output_dims);
    if (run.is_failed()) return;
    const std::vector<int64_t> dims = merged(input.dims);
    const rueda_tensor tensor = tensor_of(name_, input, output, dims, process_set_);
    rueda_handle handle = 0;
    const int code =
        rueda_reduce_scatter_async(&tensor, is_even ? nullptr : rows, &options_, &handle);
    run.follow(code, handle);
  }

 private:
  std::string name_;
  rueda_reduce_options options_;
  uint32_t process_set_;
};

// An all-to-all. Its second input has the numbers of rows that go to each rank, or no element: the
// parts are then equal. What came from each rank is an output, too.
class Alltoall {
 public:
  explicit Alltoall(Attributes& attributes)
      : name_(attributes.string("tensor_name")),
        process_set_(static_cast<uint32_t>(attributes.integer("process_set"))) {}

  void start(Run& run) const {
    run.expect_outputs(2);
    const Input input = run.input(0);
    const Input splits = run.input(1);
    if (!has_rows(run, input)) return;
    const int64_t size = size_of_set(run, process_set_);
    const int64_t place = place_in_set(run, process_set_);
    if (run.is_failed() || !take_splits(run, input, splits, size)) return;
    auto* received = static_cast<int64_t*>(run.make_output(1, TF_INT64, {size}));
    if (run.is_failed()) return;
    auto table = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(size * size));
    exchange(run, name_, table->data(), process_set_,
             [this, &run, input, received, size, place, table](const rueda_result&) {
               for (int64_t i = 0; i < size; ++i) {
                 received[i] = (*table)[static_cast<size_t>(i * size + place)];
               }
               send(run, input, received, *table, size);
             });
  }

 private:
  // Puts the numbers of rows that go to each rank into run.numbers(). Returns false, and fails the
  // run, if they are no splits of the input.
  static bool take_splits(Run& run, const Input& input, const Input& splits, int64_t size) {
    std::vector<int64_t>& own = run.numbers();
    const auto* given = static_cast<const int64_t*>(splits.memory);
    if (splits.bytes > 0) own.assign(given, given + splits.bytes / sizeof(int64_t));
    if (splits.bytes == 0 && input.dims[0] % size == 0) {
      own.assign(static_cast<size_t>(size), input.dims[0] / size);
    }
    if (splits.bytes == 0 && own.empty()) {
      run.fail(TF_INVALID_ARGUMENT, "an alltoall of " + std::to_string(input.dims[0]) +
                                        " rows cannot be cut into equal parts for " +
                                        std::to_string(size) + " ranks; give splits");
      return false;
    }
    int64_t sum = 0;
    bool is_right = own.size() == static_cast<size_t>(size);
    for (const int64_t rows : own) {
      is_right = is_right && rows >= 0 && rows <= input.dims[0];
      sum += is_right ? rows : 0;
    }
    if (is_right && sum <= input.dims[0]) return true;
    run.fail(TF_INVALID_ARGUMENT, "splits must be " + std::to_string(size) +
                                      " numbers from 0 that add up to at most the tensor's " +
                                      std::to_string(input.dims[0]) + " rows");
    return false;
  }

  void send(Run& run, const Input& input, const int64_t* received,
            const std::vector<int64_t>& table, int64_t size) const {
    std::vector<int64_t> output_dims = input.dims;
    output_dims[0] = std::accumulate(received, received + size, int64_t{0});
    void* output = run.make_output(0, input.type, output_dims);
    if (run.is_failed()) return;
    std::vector<int64_t> dims = merged(input.dims);
    dims[0] = std::accumulate(run.numbers().begin(), run.numbers().end(), int64_t{0});
    const rueda_tensor tensor = tensor_of(name_, input, output, dims, process_set_);
    rueda_handle handle = 0;
    const int code = rueda_alltoall_async(&tensor, table.data(), &handle);
    run.follow(code, handle);
  }

  std::string name_;
  uint32_t process_set_;
};

class Barrier {
 public:
  explicit Barrier(Attributes& attributes)
      : name_(attributes.string("tensor_name")),
        process_set_(static_cast<uint32_t>(attributes.integer("process_set"))) {}

  void start(Run& run) const {
    rueda_handle handle = 0;
    const int code = rueda_process_set_barrier_async(process_set_, name_.c_str(), &handle);
    run.follow(code, handle);
  }

 private:
  std::string name_;
  uint32_t process_set_;
};

// One number of the job, asked for at each run: in an elastic job it changes.
class Place {
 public:
  explicit Place(Attributes& attributes)
      : what_(attributes.string("what")),
        process_set_(static_cast<uint32_t>(attributes.integer("process_set"))) {}

  void start(Run& run) const {
    run.expect_outputs(1);
    const int value = ask();
    if (value < 0) {
      run.fail_by_librueda(value);
      return;
    }
    auto* output = static_cast<int32_t*>(run.make_output(0, TF_INT32, {}, true));
    if (output != nullptr) *output = value;
  }

 private:
  int ask() const {
    if (what_ == "rank") return rueda_rank();
    if (what_ == "local_rank") return rueda_local_rank();
    if (what_ == "local_size") return rueda_local_size();
    if (what_ == "size") return rueda_process_set_size(process_set_);
    int32_t place = -1;
    const int error = rueda_process_set_rank(process_set_, &place);
    return error < 0 ? error : (place >= 0 ? 1 : 0);  // "included"
  }

  std::string what_;
  uint32_t process_set_;
};

// Stands for what an op needs besides its tensors, so that TensorFlow does not take an op of
// constants for a constant: its output is never one. It has no attributes.
class Anchor {
 public:
  explicit Anchor(Attributes& /*attributes*/) {}

  void start(Run& run) const {
    run.expect_outputs(1);
    auto* output = static_cast<int32_t*>(run.make_output(0, TF_INT32, {}, true));
    if (output != nullptr) *output = 0;
  }
};

template <class Kernel>
void* create(TF_OpKernelConstruction* context) {
  Attributes attributes(context);
  auto kernel = std::make_unique<Kernel>(attributes);
  return attributes.finish() ? kernel.release() : nullptr;
}

template <class Kernel>
void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  auto* run = new Run(context, done);  // it deletes itself
  static_cast<const Kernel*>(kernel)->start(*run);
  run->release();
}

template <class Kernel>
void destroy(void* kernel) {
  delete static_cast<Kernel*>(kernel);
}

template <class Kernel>
std::string register_kernel(const char* op) {
  TF_Status* status = TF_NewStatus();
  TF_RegisterKernelBuilder(
      op, TF_NewAsyncKernelBuilder(op, "CPU", &create<Kernel>, &compute<Kernel>, &destroy<Kernel>),
      status);
  std::string problem = TF_GetCode(status) == TF_OK ? "" : TF_Message(status);
  TF_DeleteStatus(status);
  return problem;
}

}  // namespace

std::string register_kernels() {
  for (const std::string& problem :
       {register_kernel<Allreduce>("RuedaAllreduce"), register_kernel<Broadcast>("RuedaBroadcast"),
        register_kernel<Allgather>("RuedaAllgather"),
        register_kernel<Reducescatter>("RuedaReducescatter"),
        register_kernel<Alltoall>("RuedaAlltoall"), register_kernel<Barrier>("RuedaBarrier"),
        register_kernel<Place>("RuedaPlace"), register_kernel<Anchor>("RuedaAnchor")}) {
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace rueda::tensorflow
