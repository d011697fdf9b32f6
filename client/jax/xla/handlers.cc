// The handlers that XLA calls for rueda.jax's collectives, by its foreign function interface. A
// handler submits to librueda and returns a future, so that no thread of XLA's pool waits for other
// ranks. Handlers may be called from any thread, several at once. XLA keeps arguments, results and
// attributes until the future is complete, and writes errors into the program's exception.
//
// Attributes of all of them: `name` is the collective's, the same on all ranks; `process_set` is
// librueda's number; `dtypes` has a rueda_dtype for each argument, or -1 for elements that are
// carried as bytes.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <rueda/rueda.h>
#include <xla/ffi/api/ffi.h>

#include "client/jax/call_sites.h"
#include "client/jax/large_pages.h"
#include "client/jax/xla/call.h"

namespace rueda::jax {
namespace {

namespace ffi = xla::ffi;
using Numbers = ffi::Span<const int64_t>;

constexpr int64_t kAsBytes = -1;
constexpr size_t kMostDims = 8;  // librueda's

// What every handler is given, in this order.
struct Arguments {
  ffi::RunId run;
  ffi::RemainingArgs inputs;
  ffi::RemainingRets outputs;
  std::string_view name;
  int32_t process_set;
  Numbers dtypes;
};

// A tensor as librueda takes it, with the memory of its name and shape.
struct Operand {
  std::string name;
  std::vector<int64_t> shape;
  void* input;
  void* output;
  rueda_dtype dtype;

  rueda_tensor tensor(int32_t process_set) const {
    return {name.c_str(),
            input,
            output,
            shape.data(),
            static_cast<int32_t>(shape.size()),
            dtype,
            static_cast<uint32_t>(process_set)};
  }
};

// Dimensions beyond librueda's eight are joined with the last of these.
std::vector<int64_t> shape_of(const ffi::AnyBuffer& buffer, bool is_as_bytes) {
  std::vector<int64_t> shape(buffer.dimensions().begin(), buffer.dimensions().end());
  if (is_as_bytes) shape.push_back(static_cast<int64_t>(ffi::ByteWidth(buffer.element_type())));
  while (shape.size() > kMostDims) {
    const int64_t last = shape.back();
    shape.pop_back();
    shape.back() *= last;
  }
  return shape;
}

// Makes the operands of a call, or returns an empty list after it has made the call fail. A name
// that is in a program twice is refused (CallSites).
std::vector<Operand> operands_of(const Arguments& arguments, Call& call) {
  const size_t count = arguments.inputs.size();
  const std::string name(arguments.name);
  if (count == 0 || arguments.outputs.size() != count || arguments.dtypes.size() != count) {
    call.fail(RUEDA_ERR_INTERNAL, "the handler of " + name + " was called with " +
                                      std::to_string(count) +
                                      " arguments, and not as many results or dtypes");
    return {};
  }
  // The attribute's text stays where it is for as long as the program lives, one for each place.
  if (!CallSites::of_process().note(name, arguments.name.data(), arguments.run.run_id)) {
    call.fail(RUEDA_ERR_DUPLICATE_NAME,
              "the collective " + name +
                  " is at two places of one compiled program, because a function that JAX compiles "
                  "by itself (under jax.jit or jax.checkpoint) is called twice in it, and ranks "
                  "might run the two in different orders; compile the function with "
                  "jax.jit(..., inline=True), or give both arrays to one call");
    return {};
  }
  std::vector<Operand> operands;
  for (size_t i = 0; i < count; ++i) {
    const auto input = *arguments.inputs.get<ffi::AnyBuffer>(i);
    ffi::AnyBuffer output = **arguments.outputs.get<ffi::AnyBuffer>(i);
    prefer_large_pages(output.untyped_data(), output.size_bytes());
    const int64_t dtype = arguments.dtypes[i];
    operands.push_back(
        {.name =
             count == 1 ? name : name + "_" + std::to_string(i + 1) + "of" + std::to_string(count),
         .shape = shape_of(input, dtype == kAsBytes),
         .input = input.untyped_data(),
         .output = output.untyped_data(),
         .dtype = dtype == kAsBytes ? RUEDA_UINT8 : static_cast<rueda_dtype>(dtype)});
  }
  return operands;
}

rueda_reduce_options options_of(int32_t op, double prescale, double postscale, int32_t wire_dtype) {
  return {.struct_bytes = sizeof(rueda_reduce_options),
          .op = static_cast<rueda_op>(op),
          .prescale = prescale,
          .postscale = postscale,
          .priority = 0,
          .wire_dtype = static_cast<rueda_wire_dtype>(wire_dtype)};
}

// Makes the call of a handler, in which submit(operands, call) begins the operations.
template <class Submit>
ffi::Future begin(const Arguments& arguments, Submit&& submit) {
  Call* call = Call::begin();
  ffi::Future future = call->future();
  const std::vector<Operand> operands = operands_of(arguments, *call);
  if (!operands.empty()) submit(operands, *call);
  call->release();
  return future;
}

const int64_t* or_null(Numbers numbers) { return numbers.size() == 0 ? nullptr : numbers.begin(); }

// Reduces its arguments over the ranks; if there are several, in one group.
ffi::Future allreduce(ffi::RunId run, ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                      std::string_view name, int32_t process_set, Numbers dtypes, int32_t op,
                      double prescale, double postscale, int32_t wire_dtype) {
  const rueda_reduce_options options = options_of(op, prescale, postscale, wire_dtype);
  return begin({run, inputs, outputs, name, process_set, dtypes},
               [&](const std::vector<Operand>& operands, Call& call) {
                 rueda_handle handle = 0;
                 if (operands.size() == 1) {
                   const rueda_tensor tensor = operands[0].tensor(process_set);
                   const int code = rueda_allreduce_async(&tensor, &options, &handle);
                   call.follow(code, handle);
                   return;
                 }
                 std::vector<rueda_tensor> tensors;
                 for (const Operand& operand : operands) {
                   tensors.push_back(operand.tensor(process_set));
                 }
                 const int code = rueda_grouped_allreduce_async(
                     std::string(name).c_str(), tensors.data(), tensors.size(), &options, &handle);
                 call.follow(code, handle);
               });
}

// Gives every rank the root's arguments, by an operation for each.
ffi::Future broadcast(ffi::RunId run, ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                      std::string_view name, int32_t process_set, Numbers dtypes,
                      int32_t root_rank) {
  return begin({run, inputs, outputs, name, process_set, dtypes},
               [&](const std::vector<Operand>& operands, Call& call) {
                 for (const Operand& operand : operands) {
                   const rueda_tensor tensor = operand.tensor(process_set);
                   rueda_handle handle = 0;
                   const int code = rueda_broadcast_async(&tensor, root_rank, &handle);
                   call.follow(code, handle);
                 }
               });
}

// Puts the rows of all ranks one behind the other. `first_dims` has the number of rows of each
// rank.
ffi::Future allgather(ffi::RunId run, ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                      std::string_view name, int32_t process_set, Numbers dtypes,
                      Numbers first_dims) {
  return begin({run, inputs, outputs, name, process_set, dtypes},
               [&](const std::vector<Operand>& operands, Call& call) {
                 const rueda_tensor tensor = operands[0].tensor(process_set);
                 rueda_handle handle = 0;
                 const int code = rueda_allgather_async(&tensor, or_null(first_dims), &handle);
                 call.follow(code, handle);
               });
}

// Reduces its argument, and gives each rank as many rows of the result as `first_dims` says.
ffi::Future reduce_scatter(ffi::RunId run, ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                           std::string_view name, int32_t process_set, Numbers dtypes, int32_t op,
                           double prescale, double postscale, int32_t wire_dtype,
                           Numbers first_dims) {
  const rueda_reduce_options options = options_of(op, prescale, postscale, wire_dtype);
  return begin({run, inputs, outputs, name, process_set, dtypes},
               [&](const std::vector<Operand>& operands, Call& call) {
                 const rueda_tensor tensor = operands[0].tensor(process_set);
                 rueda_handle handle = 0;
                 const int code =
                     rueda_reduce_scatter_async(&tensor, or_null(first_dims), &options, &handle);
                 call.follow(code, handle);
               });
}

// Gives rows to all ranks, and gets theirs: `splits` as in rueda_alltoall_async.
ffi::Future alltoall(ffi::RunId run, ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                     std::string_view name, int32_t process_set, Numbers dtypes, Numbers splits) {
  return begin({run, inputs, outputs, name, process_set, dtypes},
               [&](const std::vector<Operand>& operands, Call& call) {
                 const rueda_tensor tensor = operands[0].tensor(process_set);
                 rueda_handle handle = 0;
                 const int code = rueda_alltoall_async(&tensor, or_null(splits), &handle);
                 call.follow(code, handle);
               });
}

// Binds what all handlers have in common.
auto bind() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::RunId>()
      .RemainingArgs()
      .RemainingRets()
      .Attr<std::string_view>("name")
      .Attr<int32_t>("process_set")
      .Attr<Numbers>("dtypes");
}

// Binds what reductions have, too.
auto bind_reduction() {
  return bind()
      .Attr<int32_t>("op")
      .Attr<double>("prescale")
      .Attr<double>("postscale")
      .Attr<int32_t>("wire_dtype");
}

}  // namespace
}  // namespace rueda::jax

#define RUEDA_JAX_HANDLER(function, binding)                                 \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* function( \
      XLA_FFI_CallFrame* frame) {                                            \
    static auto* handler = (binding).release();                              \
    return handler->Call(frame);                                             \
  }

RUEDA_JAX_HANDLER(rueda_jax_allreduce, rueda::jax::bind_reduction().To(rueda::jax::allreduce))
RUEDA_JAX_HANDLER(rueda_jax_broadcast,
                  rueda::jax::bind().Attr<int32_t>("root_rank").To(rueda::jax::broadcast))
RUEDA_JAX_HANDLER(
    rueda_jax_allgather,
    rueda::jax::bind().Attr<rueda::jax::Numbers>("first_dims").To(rueda::jax::allgather))
RUEDA_JAX_HANDLER(rueda_jax_reduce_scatter, rueda::jax::bind_reduction()
                                                .Attr<rueda::jax::Numbers>("first_dims")
                                                .To(rueda::jax::reduce_scatter))
RUEDA_JAX_HANDLER(rueda_jax_alltoall,
                  rueda::jax::bind().Attr<rueda::jax::Numbers>("splits").To(rueda::jax::alltoall))

// Is called before a process ends, and before XLA waits for its programs.
extern "C" __attribute__((visibility("default"))) void rueda_jax_leave_job() {
  rueda::jax::Call::leave_job();
}
