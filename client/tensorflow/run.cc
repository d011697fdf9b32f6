#include "client/tensorflow/run.h"

#include <memory>
#include <optional>
#include <utility>

namespace rueda::tensorflow {
namespace {

// librueda's memory is aligned to 64 bytes, and TensorFlow copies what is aligned to less.
void free_memory(void* memory, size_t /*bytes*/, void* /*argument*/) { rueda_free(memory); }

// Returns the bytes of a tensor, or nothing if no memory has so many. Other ranks say how many rows
// they have, and are not believed.
std::optional<size_t> bytes_in(TF_DataType type, const std::vector<int64_t>& dims) {
  size_t bytes = bytes_of(type);
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(dim), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace

size_t bytes_of(TF_DataType type) {
  switch (static_cast<int>(type)) {
    case TF_COMPLEX128: return 16;
    case TF_DOUBLE:
    case TF_INT64:
    case TF_UINT64:
    case TF_COMPLEX64: return 8;
    case TF_FLOAT:
    case TF_INT32:
    case TF_UINT32: return 4;
    case TF_HALF:
    case TF_BFLOAT16:
    case TF_INT16:
    case TF_UINT16: return 2;
    case TF_INT8:
    case TF_UINT8:
    case TF_BOOL: return 1;
    default: return 0;
  }
}

rueda_dtype dtype_of(TF_DataType type) {
  switch (static_cast<int>(type)) {
    case TF_DOUBLE: return RUEDA_FLOAT64;
    case TF_HALF: return RUEDA_FLOAT16;
    case TF_BFLOAT16: return RUEDA_BFLOAT16;
    case TF_INT32: return RUEDA_INT32;
    case TF_INT64: return RUEDA_INT64;
    case TF_INT8: return RUEDA_INT8;
    case TF_UINT8: return RUEDA_UINT8;
    case TF_BOOL: return RUEDA_BOOL;
    case TF_INT16: return RUEDA_INT16;
    case TF_UINT16: return RUEDA_UINT16;
    case TF_UINT32: return RUEDA_UINT32;
    case TF_UINT64: return RUEDA_UINT64;
    case TF_COMPLEX64: return RUEDA_COMPLEX64;
    case TF_COMPLEX128: return RUEDA_COMPLEX128;
    default: return RUEDA_FLOAT32;
  }
}

Run::Run(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done)
    : context_(context), done_(*reinterpret_cast<std::function<void()>*>(done)) {}

Run::~Run() {
  for (TF_Tensor* tensor : inputs_) TF_DeleteTensor(tensor);
  for (TF_Tensor* tensor : outputs_) {
    if (tensor != nullptr) TF_DeleteTensor(tensor);
  }
}

Input Run::input(int place) {
  TF_Tensor* tensor = nullptr;
  TF_Status* status = TF_NewStatus();
  TF_GetInput(context_, place, &tensor, status);
  if (TF_GetCode(status) != TF_OK) fail(TF_GetCode(status), TF_Message(status));
  TF_DeleteStatus(status);
  if (tensor == nullptr) return {nullptr, TF_FLOAT, {}, 0};
  inputs_.push_back(tensor);
  Input input{TF_TensorData(tensor), TF_TensorType(tensor), {}, TF_TensorByteSize(tensor)};
  for (int i = 0; i < TF_NumDims(tensor); ++i) input.dims.push_back(TF_Dim(tensor, i));
  return input;
}

void* Run::make_output(int place, TF_DataType type, const std::vector<int64_t>& dims,
                       bool is_kept) {
  const std::optional<size_t> wanted = bytes_in(type, dims);
  if (!wanted) {
    fail(TF_INVALID_ARGUMENT, "a result cannot have as many rows as the ranks say");
    return nullptr;
  }
  const size_t bytes = *wanted;
  const int num_dims = static_cast<int>(dims.size());
  void* memory = is_kept || bytes == 0 ? nullptr : rueda_alloc(bytes);
  TF_Tensor* tensor = memory == nullptr ? TF_AllocateTensor(type, dims.data(), num_dims, bytes)
                                        : TF_NewTensor(type, dims.data(), num_dims, memory, bytes,
                                                       &free_memory, nullptr);
  if (tensor == nullptr) {
    fail(TF_ABORTED, "there is no memory for a result of " + std::to_string(bytes) + " bytes");
    return nullptr;
  }
  outputs_[static_cast<size_t>(place)] = tensor;
  return TF_TensorData(tensor);
}

void Run::follow(int code, rueda_handle handle, Step step) {
  if (code < 0) {
    fail_by_librueda(code);
    return;
  }
  holds_.fetch_add(1, std::memory_order_relaxed);
  auto followed = std::make_unique<Followed>(Followed{this, std::move(step)});
  if (rueda_then(handle, &on_end, followed.get()) == RUEDA_OK) {
    static_cast<void>(followed.release());  // on_end owns it, and may have deleted it by now
    return;
  }
  // There is no thread that calls back, so this one waits.
  rueda_result result{};
  const int error = rueda_wait(handle, -1, &result);
  on_end(handle, error, &result, followed.release());
}

void Run::on_end(rueda_handle /*handle*/, int error, const rueda_result* result, void* argument) {
  const std::unique_ptr<Followed> followed(static_cast<Followed*>(argument));
  if (error < 0) {
    followed->run->fail_by_librueda(error);
  } else if (followed->step && !followed->run->is_failed()) {
    followed->step(*result);
  }
  followed->run->release();
}

void Run::fail(TF_Code code, const std::string& sentence) {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  code_ = code;
  sentence_ = sentence;
}

// Python finds the error's name in the sentence, because a status carries no more than a code of
// TensorFlow's. That is ABORTED: UNAVAILABLE would come out of a graph as an internal error.
void Run::fail_by_librueda(int error) {
  fail(TF_ABORTED, std::string(rueda_last_error()) + " [" + rueda_error_name(error) + "]");
}

void Run::release() {
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) end();
}

void Run::end() {
  TF_Status* status = TF_NewStatus();
  if (is_failed()) {
    TF_SetStatus(status, code_, sentence_.c_str());
    TF_OpKernelContext_Failure(context_, status);
  } else {
    for (size_t i = 0; i < outputs_.size() && TF_GetCode(status) == TF_OK; ++i) {
      TF_SetOutput(context_, static_cast<int>(i), outputs_[i], status);
    }
    if (TF_GetCode(status) != TF_OK) TF_OpKernelContext_Failure(context_, status);
  }
  TF_DeleteStatus(status);
  const std::function<void()> done = std::move(done_);
  delete this;  // the inputs and outputs are let go before TensorFlow goes on
  done();
}

void take_back_callbacks() { rueda_then_take_back(&Run::on_end); }

}  // namespace rueda::tensorflow
