// Implements DeviceDriver with the CUDA driver.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include <dlfcn.h>

#include "client/src/device/cuda_abi.h"
#include "client/src/device/driver.h"

namespace rueda::client {
namespace {

using namespace cuda;

class CudaDriver final : public DeviceDriver {
 public:
  static Result<std::unique_ptr<DeviceDriver>> load(const char* library);

  Result<DeviceAllocation> find(uint64_t address) override;
  uint64_t buffer_id(uint64_t address) override;
  Result<ExportedMemory> export_memory(const DeviceAllocation& allocation) override;
  Result<uint64_t> register_host(std::span<std::byte> memory) override;
  void unregister_host(std::byte* memory) override;
  Status check_stream(StreamBeside stream) override;
  Status write_value(StreamBeside stream, uint64_t counter, uint64_t value) override;
  Status wait_value(StreamBeside stream, uint64_t counter, uint64_t value) override;
  Result<void*> make_stream() override;
  void free_stream(void* stream) override;
  Status synchronize(void* stream) override;
  Status copy_to_host(StreamBeside stream, std::byte* to, uint64_t from, size_t bytes) override;
  Status copy_to_device(StreamBeside stream, uint64_t to, const std::byte* from,
                        size_t bytes) override;

 private:
  // While this object lives, a thread that has no context, because it has never used CUDA, has the
  // given one. With is_meant, a thread that has another context gets the given one, too.
  class InContext {
   public:
    InContext(const Functions& functions, void* context, bool is_meant = false)
        : functions_(functions) {
      void* current = nullptr;
      if (context == nullptr || functions_.context_get(&current) != kSuccess) return;
      const bool is_there = is_meant ? current == context : current != nullptr;
      is_pushed_ = !is_there && functions_.context_push(context) == kSuccess;
    }
    ~InContext() {
      void* ignored = nullptr;
      if (is_pushed_) functions_.context_pop(&ignored);
    }
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;

   private:
    const Functions& functions_;
    bool is_pushed_ = false;
  };

  template <class Value>
  CuResult get(Attribute attribute, uint64_t address, Value& value) const {
    return functions_.pointer_attribute(&value, attribute, address);
  }
  Status to_status(CuResult result, const std::string& what) const;
  Result<ExportedMemory> export_by_fd(const DeviceAllocation& allocation) const;
  void* context_of(uint64_t address) const;
  // Enters the context that calls with this stream need.
  InContext context_for(StreamBeside stream) const;

  Functions functions_;
  std::atomic<void*> context_{nullptr};  // context of the memory that was found last
  std::atomic<bool> has_several_contexts_{false};
};

Result<std::unique_ptr<DeviceDriver>> CudaDriver::load(const char* library) {
  void* const loaded = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* reason = ::dlerror();
    return Status{Code::kUnavailable, std::string("there is no GPU driver in this process: ") +
                                          (reason != nullptr ? reason : library) +
                                          "; hand over host memory"};
  }
  auto driver = std::make_unique<CudaDriver>();
  Functions& functions = driver->functions_;
  std::string missing;
  const auto look_up = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(loaded, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  look_up("cuInit", functions.init);
  look_up("cuGetErrorString", functions.error_string);
  look_up("cuPointerGetAttribute", functions.pointer_attribute);
  look_up("cuDeviceGet", functions.device_get);
  look_up("cuDeviceGetUuid_v2", functions.device_uuid);
  look_up("cuCtxGetCurrent", functions.context_get);
  look_up("cuCtxGetDevice", functions.context_device);
  look_up("cuCtxPushCurrent_v2", functions.context_push);
  look_up("cuCtxPopCurrent_v2", functions.context_pop);
  look_up("cuDevicePrimaryCtxRetain", functions.primary_context);
  look_up("cuMemGetAddressRange_v2", functions.address_range);
  look_up("cuIpcGetMemHandle", functions.ipc_get);
  look_up("cuMemRetainAllocationHandle", functions.retain_handle);
  look_up("cuMemExportToShareableHandle", functions.export_handle);
  look_up("cuMemRelease", functions.release_handle);
  look_up("cuMemHostRegister_v2", functions.host_register);
  look_up("cuMemHostGetDevicePointer_v2", functions.host_pointer);
  look_up("cuMemHostUnregister", functions.host_unregister);
  look_up("cuStreamWriteValue64_v2", functions.stream_write);
  look_up("cuStreamWaitValue64_v2", functions.stream_wait);
  look_up("cuStreamIsCapturing", functions.stream_is_capturing);
  look_up("cuStreamCreate", functions.stream_create);
  look_up("cuStreamDestroy_v2", functions.stream_destroy);
  look_up("cuStreamSynchronize", functions.stream_synchronize);
  look_up("cuMemcpyDtoHAsync_v2", functions.copy_to_host);
  look_up("cuMemcpyHtoDAsync_v2", functions.copy_to_device);
  if (!missing.empty()) {
    return Status{Code::kUnavailable, std::string("the GPU driver ") + library + " has no " +
                                          missing +
                                          ": it must be one for CUDA 12; hand over host memory"};
  }
  if (Status status = driver->to_status(functions.init(0), "the GPU driver"); !status.is_ok()) {
    return status;
  }
  return std::unique_ptr<DeviceDriver>(std::move(driver));
}

Status CudaDriver::to_status(CuResult result, const std::string& what) const {
  if (result == kSuccess) return Status::ok();
  const char* text = nullptr;
  functions_.error_string(result, &text);
  const Code code = result == kInvalidValue  ? Code::kInvalidArgument
                    : result == kOutOfMemory ? Code::kResourceExhausted
                    : result == kNoDevice    ? Code::kUnavailable
                                             : Code::kInternal;
  return {code, what + ": " + (text != nullptr ? text : "unknown error") + " (CUDA error " +
                    std::to_string(result) + ")"};
}

// Returns the context of the memory at an address. Mapped memory belongs to no context: the
// thread's context serves if it is on that GPU, or else the context that CUDA's runtime uses, which
// is never released.
void* CudaDriver::context_of(uint64_t address) const {
  void* context = nullptr;
  if (get(kContext, address, context) == kSuccess && context != nullptr) return context;
  int ordinal = 0;
  int device = 0;
  int current = 0;
  if (get(kDeviceOrdinal, address, ordinal) != kSuccess ||
      functions_.device_get(&device, ordinal) != kSuccess) {
    return nullptr;
  }
  const bool is_current = functions_.context_get(&context) == kSuccess && context != nullptr &&
                          functions_.context_device(&current) == kSuccess && current == device;
  if (is_current || functions_.primary_context(&context, device) == kSuccess) return context;
  return nullptr;
}

CudaDriver::InContext CudaDriver::context_for(StreamBeside stream) const {
  const bool is_default = reinterpret_cast<uintptr_t>(stream.handle) <= kLastDefaultStream;
  if (!is_default || stream.memory == 0) return {functions_, context_};
  // The driver is asked only if there are several contexts.
  return {functions_, has_several_contexts_ ? context_of(stream.memory) : context_.load(), true};
}

Result<DeviceAllocation> CudaDriver::find(uint64_t address) {
  unsigned int type = 0;
  unsigned int is_managed = 0;
  if (get(kMemoryType, address, type) != kSuccess || type != kDeviceMemory) {
    return Status{Code::kInvalidArgument,
                  "the pointer is no memory of a GPU's; hand it over as host memory"};
  }
  if (get(kIsManaged, address, is_managed) == kSuccess && is_managed != 0) {
    return Status{Code::kInvalidArgument,
                  "the pointer is managed memory, which no other process can have; allocate it on "
                  "the device"};
  }
  void* const context = context_of(address);
  const InContext in_context(functions_, context);
  DeviceAllocation found;
  CuPointer base = 0;
  size_t bytes = 0;
  int ordinal = 0;
  int device = 0;
  CuUuid uuid{};
  unsigned long long buffer_id = 0;
  // The attributes of a mapped range are those of the whole reserved range.
  CuResult result = functions_.address_range(&base, &bytes, address);
  unsigned int is_mapped = 1;
  if (result != kSuccess || (get(kIsMapped, address, is_mapped) == kSuccess && is_mapped == 0)) {
    return Status{Code::kInvalidArgument,
                  "no memory is mapped at this address; hand over memory that has been allocated"};
  }
  if (context != nullptr) {
    if (void* const before = context_; before != nullptr && before != context) {
      has_several_contexts_ = true;
    }
    context_ = context;
  }
  if (result == kSuccess) result = get(kBufferId, address, buffer_id);
  if (result == kSuccess) result = get(kDeviceOrdinal, address, ordinal);
  if (result == kSuccess) result = functions_.device_get(&device, ordinal);
  if (result == kSuccess) result = functions_.device_uuid(&uuid, device);
  if (Status status = to_status(result, "device memory"); !status.is_ok()) return status;
  found.base = base;
  found.bytes = bytes;
  found.buffer_id = buffer_id;
  std::memcpy(found.device.data(), uuid.bytes, sizeof(uuid.bytes));
  return found;
}

uint64_t CudaDriver::buffer_id(uint64_t address) {
  unsigned long long id = 0;
  return get(kBufferId, address, id) == kSuccess ? id : 0;
}

Result<ExportedMemory> CudaDriver::export_memory(const DeviceAllocation& allocation) {
  // An old driver does not know this attribute, and has no other kind of memory.
  int is_ipc_capable = 1;
  (void)get(kIsIpcCapable, allocation.base, is_ipc_capable);
  if (is_ipc_capable == 0) return export_by_fd(allocation);
  const InContext in_context(functions_, context_of(allocation.base));
  CuIpcHandle handle{};
  Status status = to_status(functions_.ipc_get(&handle, allocation.base),
                            "device memory cannot be shared with the GPU worker");
  if (!status.is_ok()) return status;
  ExportedMemory exported;
  std::memcpy(exported.ipc.data(), handle.bytes, sizeof(handle.bytes));
  return exported;
}

Result<ExportedMemory> CudaDriver::export_by_fd(const DeviceAllocation& allocation) const {
  unsigned long long allowed = 0;
  unsigned long long handle = 0;
  (void)get(kAllowedHandles, allocation.base, allowed);
  if ((allowed & kFileDescriptor) == 0 ||
      functions_.retain_handle(&handle, reinterpret_cast<void*>(allocation.base)) != kSuccess) {
    return Status{Code::kInvalidArgument,
                  "this device memory was not allocated so that other processes can have it; "
                  "allocate it with cudaMalloc, or so that it can be exported by a descriptor (of "
                  "PyTorch: PYTORCH_CUDA_ALLOC_CONF without cudaMallocAsync, and without "
                  "expandable_segments where these ask for other handles), or hand over host "
                  "memory"};
  }
  int fd = -1;
  const CuResult result = functions_.export_handle(&fd, handle, kFileDescriptor, 0);
  (void)functions_.release_handle(handle);
  if (Status status = to_status(result, "device memory cannot be shared by a descriptor");
      !status.is_ok()) {
    return status;
  }
  ExportedMemory exported;
  exported.is_fd = true;
  exported.fd = UniqueFd(fd);
  return exported;
}

Result<uint64_t> CudaDriver::register_host(std::span<std::byte> memory) {
  const InContext in_context(functions_, context_);
  CuPointer at = 0;
  CuResult result = functions_.host_register(memory.data(), memory.size(), kPortableAndMapped);
  if (result == kSuccess) {
    result = functions_.host_pointer(&at, memory.data(), 0);
    if (result != kSuccess) (void)functions_.host_unregister(memory.data());
  }
  if (Status status = to_status(result, "host memory cannot be pinned"); !status.is_ok()) {
    return status;
  }
  return static_cast<uint64_t>(at);
}

void CudaDriver::unregister_host(std::byte* memory) {
  const InContext in_context(functions_, context_);
  (void)functions_.host_unregister(memory);
}

Status CudaDriver::check_stream(StreamBeside stream) {
  const InContext in_context = context_for(stream);
  int is_captured = 0;
  const CuResult result = functions_.stream_is_capturing(stream.handle, &is_captured);
  if (result == kSuccess && is_captured == 0) return Status::ok();
  // The legacy default stream reports a capture by an error, whichever stream is being captured.
  if (result != kSuccess && result != kCaptureImplicit) return to_status(result, "a stream");
  return {Code::kInvalidArgument,
          "a CUDA graph is being captured from the stream, and a reduction is none of its nodes: "
          "what would be recorded is not done now, and done with old numbers later; submit it, and "
          "let the stream wait for it, outside of the capture"};
}

Status CudaDriver::write_value(StreamBeside stream, uint64_t counter, uint64_t value) {
  const InContext in_context = context_for(stream);
  return to_status(functions_.stream_write(stream.handle, counter, value, 0),
                   "a stream cannot be told to write a counter");
}

Status CudaDriver::wait_value(StreamBeside stream, uint64_t counter, uint64_t value) {
  const InContext in_context = context_for(stream);
  return to_status(functions_.stream_wait(stream.handle, counter, value, kAtLeast),
                   "a stream cannot be told to wait for a counter");
}

Result<void*> CudaDriver::make_stream() {
  const InContext in_context(functions_, context_);
  void* stream = nullptr;
  Status status = to_status(functions_.stream_create(&stream, kNonBlocking), "a stream");
  if (!status.is_ok()) return status;
  return stream;
}

void CudaDriver::free_stream(void* stream) {
  const InContext in_context(functions_, context_);
  (void)functions_.stream_destroy(stream);
}

Status CudaDriver::synchronize(void* stream) {
  const InContext in_context(functions_, context_);
  return to_status(functions_.stream_synchronize(stream), "copies between device and host memory");
}

Status CudaDriver::copy_to_host(StreamBeside stream, std::byte* to, uint64_t from, size_t bytes) {
  const InContext in_context = context_for(stream);
  return to_status(functions_.copy_to_host(to, from, bytes, stream.handle),
                   "device memory cannot be copied to host memory");
}

Status CudaDriver::copy_to_device(StreamBeside stream, uint64_t to, const std::byte* from,
                                  size_t bytes) {
  const InContext in_context = context_for(stream);
  return to_status(functions_.copy_to_device(to, from, bytes, stream.handle),
                   "host memory cannot be copied to device memory");
}

}  // namespace

Result<DeviceDriver*> cuda_driver() {
  // The object is never destroyed, and the driver's library is never unloaded.
  static const auto* const loaded = [] {
    const char* named = std::getenv("RUEDA_CUDA_LIBRARY");
    return new Result<std::unique_ptr<DeviceDriver>>(
        CudaDriver::load(named != nullptr && *named != '\0' ? named : "libcuda.so.1"));
  }();
  if (!loaded->is_ok()) return loaded->status();
  return loaded->value().get();
}

}  // namespace rueda::client
