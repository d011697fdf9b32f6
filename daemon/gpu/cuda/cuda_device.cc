#include "daemon/gpu/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <unistd.h>

#include "daemon/gpu/cuda/cuda_stream.h"
#include "daemon/gpu/cuda/kernels.h"
#include "daemon/gpu/nccl/nccl_communicator.h"

namespace rueda::gpu::cuda {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryHandle::ipc));

void* pointer(DeviceAddress address) { return reinterpret_cast<void*>(address); }
DeviceAddress address_of(const void* at) { return reinterpret_cast<DeviceAddress>(at); }

// Returns an attribute of a GPU, or 0 if the driver is too old to know it.
int attribute(int ordinal, cudaDeviceAttr which) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, ordinal) == cudaSuccess ? value : 0;
}

Result<DeviceFacts> facts_of(int ordinal, uint32_t* multiprocessors) {
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
  if (error != cudaSuccess) return to_status(error, "GPU " + std::to_string(ordinal));
  DeviceFacts facts{.ordinal = ordinal, .name = properties.name};
  facts.capability_major = properties.major;
  facts.capability_minor = properties.minor;
  std::memcpy(facts.uuid.data(), properties.uuid.bytes, facts.uuid.size());
  facts.memory_bytes = properties.totalGlobalMem;
  facts.is_exclusive = attribute(ordinal, cudaDevAttrComputeMode) ==
                       static_cast<int>(cudaComputeModeExclusiveProcess);
  facts.has_mps = attribute(ordinal, cudaDevAttrMpsEnabled) == 1;
  if (multiprocessors != nullptr) {
    *multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
  }
  return facts;
}

Result<int> count_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count;
  return Status(Code::kUnavailable,
                "there is no GPU to be used: " + std::string(cudaGetErrorString(error)) + " (" +
                    cudaGetErrorName(error) + ")");
}

const Result<nccl::Library>& library() {
  static const Result<nccl::Library> loaded = nccl::load();
  return loaded;
}

}  // namespace

Result<std::vector<DeviceFacts>> list_devices() {
  const Result<int> count = count_devices();
  if (!count.is_ok()) return count.status();
  std::vector<DeviceFacts> found;
  for (int ordinal = 0; ordinal < count.value(); ++ordinal) {
    Result<DeviceFacts> facts = facts_of(ordinal, nullptr);
    if (!facts.is_ok()) return facts.status();
    found.push_back(std::move(facts).value());
  }
  return found;
}

Result<std::unique_ptr<Device>> CudaDevice::open(const DeviceOptions& options) {
  const Result<int> count = count_devices();
  if (!count.is_ok()) return count.status();
  const std::string name = "GPU " + std::to_string(options.ordinal);
  if (options.ordinal < 0 || options.ordinal >= count.value()) {
    return Status(Code::kNotFound,
                  name + ": there are " + std::to_string(count.value()) + " to be used");
  }
  uint32_t multiprocessors = 1;
  Result<DeviceFacts> facts = facts_of(options.ordinal, &multiprocessors);
  if (!facts.is_ok()) return facts.status();
  if (const cudaError_t error = cudaSetDevice(options.ordinal); error != cudaSuccess) {
    return to_status(error, name);
  }
  Result<Driver> driver = find_driver();
  if (!driver.is_ok()) return driver.status();
  CUdevice device = 0;
  int can_wait = 0;
  CUresult result = driver.value().device_get(&device, options.ordinal);
  if (result == CUDA_SUCCESS) {
    result = driver.value().device_get_attribute(
        &can_wait, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device);
  }
  if (result != CUDA_SUCCESS) return to_status(to_runtime(result), name);
  if (can_wait == 0) {
    return Status(Code::kUnavailable, name + ": its streams cannot wait for values in memory");
  }
  if (const cudaError_t error = load_kernels(); error != cudaSuccess) {
    return to_status(error, name + ": loading kernels");
  }
  return std::unique_ptr<Device>(
      new CudaDevice(options, std::move(facts).value(), driver.value(), multiprocessors));
}

CudaDevice::CudaDevice(const DeviceOptions& options, DeviceFacts facts, const Driver& driver,
                       uint32_t multiprocessors)
    : options_(options),
      facts_(std::move(facts)),
      driver_(driver),
      multiprocessors_(multiprocessors) {}

// The memory of a lost device cannot be freed by calls: the end of the process frees it.
CudaDevice::~CudaDevice() {
  // Joins are closed before their pieces.
  for (const bool are_joins : {true, false}) {
    for (auto next = imports_.begin(); next != imports_.end();) {
      const auto import = next++;
      const bool is_join = !import->second.pieces.empty();
      if (is_join == are_joins) static_cast<void>(close_import(import->first));
    }
  }
  while (!memory_.empty() && free(memory_.begin()->first).is_ok()) {
  }
  while (!host_.empty()) {
    auto* const base = const_cast<std::byte*>(host_.begin()->first);
    const bool is_ours = host_.begin()->second.how == Pinned::kAllocated;
    if (!(is_ours ? free_host(base) : unregister_host(base)).is_ok()) break;
  }
}

Status CudaDevice::enter() {
  if (!health_.is_ok()) return health_;
  return note(cudaSetDevice(options_.ordinal), "choosing a GPU");
}

Status CudaDevice::note(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return Status::ok();
  // An unknown error may be sticky or not. The call below decides: it fails if the context is lost.
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  const bool is_lost = is_sticky(error) || (error == cudaErrorUnknown &&
                                            cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess);
  Status status = to_status(error, what);
  if (!is_lost) return status;
  if (health_.is_ok()) health_ = {Code::kUnavailable, "the device is lost: " + status.message()};
  return health_;
}

Result<DeviceAddress> CudaDevice::allocate(uint64_t bytes, Sharing sharing) {
  if (Status status = enter(); !status.is_ok()) return status;
  if (bytes == 0) return Status(Code::kInvalidArgument, "0 bytes of device memory are asked for");
  if (bytes > options_.memory_limit_bytes - allocated_bytes_) {
    return Status(Code::kResourceExhausted, "device memory: " + std::to_string(bytes) +
                                                " bytes more would pass the limit of " +
                                                std::to_string(options_.memory_limit_bytes));
  }
  Memory memory{.sharing = sharing, .bytes = bytes};
  DeviceAddress base = 0;
  cudaError_t error = cudaSuccess;
  if (sharing == Sharing::kFd) {
    error = to_runtime(vmm_allocate(driver_, options_.ordinal, bytes, memory.vmm));
    base = memory.vmm.base;
  } else {
    void* found = nullptr;
    error = cudaMalloc(&found, bytes);
    base = address_of(found);
  }
  if (error != cudaSuccess) return note(error, std::to_string(bytes) + " bytes of device memory");
  memory_.emplace(base, memory);
  allocated_bytes_ += bytes;
  return base;
}

Status CudaDevice::free(DeviceAddress base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto found = memory_.find(base);
  if (found == memory_.end()) {
    return {Code::kNotFound, "no memory was allocated at this address"};
  }
  cudaError_t error = cudaSuccess;
  if (found->second.sharing == Sharing::kFd) {
    // Unmapping waits for nothing, so work under way would find its memory gone.
    error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = to_runtime(vmm_free(driver_, found->second.vmm));
  } else {
    error = cudaFree(pointer(base));
  }
  if (error != cudaSuccess) return note(error, "freeing device memory");
  allocated_bytes_ -= found->second.bytes;
  memory_.erase(found);
  return Status::ok();
}

std::pair<DeviceAddress, uint64_t> CudaDevice::known(DeviceAddress address) const {
  const auto search = [address](const auto& table) -> std::pair<DeviceAddress, uint64_t> {
    const auto next = table.upper_bound(address);
    if (next == table.begin()) return {0, 0};
    const auto& [base, memory] = *std::prev(next);
    return address - base < memory.bytes ? std::pair(base, memory.bytes)
                                         : std::pair(base, uint64_t{0});
  };
  const auto own = search(memory_);
  return own.second != 0 ? own : search(imports_);
}

Result<Allocation> CudaDevice::find(DeviceAddress address) {
  if (Status status = enter(); !status.is_ok()) return status;
  auto [base, bytes] = known(address);
  CUresult result = CUDA_SUCCESS;
  if (bytes == 0) {
    // The memory may belong to another library of this process.
    CUdeviceptr driver_base = 0;
    size_t driver_bytes = 0;
    result = driver_.mem_get_address_range(&driver_base, &driver_bytes, address);
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_FOUND) {
      return Status(Code::kNotFound, "no memory is at this address");
    }
    base = driver_base;
    bytes = driver_bytes;
  }
  unsigned long long id = 0;  // NOLINT: the driver's type
  if (result == CUDA_SUCCESS) {
    result = driver_.pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, base);
  }
  if (result != CUDA_SUCCESS) return note(to_runtime(result), "looking up an address");
  return Allocation{base, bytes, id};
}

Result<MemoryHandle> CudaDevice::export_memory(DeviceAddress base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto found = memory_.find(base);
  if (found == memory_.end()) {
    return Status(Code::kNotFound, "no memory was allocated at this address");
  }
  const Memory& memory = found->second;
  MemoryHandle handle{.sharing = memory.sharing, .bytes = memory.bytes};
  if (memory.sharing == Sharing::kFd) {
    handle.bytes = memory.vmm.bytes;
    const CUresult result = vmm_export(driver_, memory.vmm, handle.fd);
    if (result != CUDA_SUCCESS) return note(to_runtime(result), "exporting device memory");
    return handle;
  }
  cudaIpcMemHandle_t ipc{};
  const cudaError_t error = cudaIpcGetMemHandle(&ipc, pointer(base));
  if (error != cudaSuccess) return note(error, "exporting device memory");
  std::memcpy(handle.ipc.data(), &ipc, sizeof ipc);
  return handle;
}

Result<DmaBuf> CudaDevice::export_dma_buf(DeviceAddress base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto found = memory_.find(base);
  if (found == memory_.end()) {
    return Status(Code::kNotFound, "no memory was allocated at this address");
  }
  CUdevice device = 0;
  int can = 0;
  CUresult result = driver_.device_get(&device, options_.ordinal);
  if (result == CUDA_SUCCESS) {
    result = driver_.device_get_attribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device);
  }
  if (result != CUDA_SUCCESS) return note(to_runtime(result), "asking about dma-bufs");
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t bytes = found->second.bytes / page * page;
  if (can == 0 || base % page != 0 || bytes == 0) {
    return Status(Code::kUnavailable,
                  can == 0 ? facts_.name +
                                 " and its driver have no dma-bufs: they need the open "
                                 "kernel modules of NVIDIA's driver, and Linux 5.12"
                           : "the memory has no whole page, or does not begin with one");
  }
  int fd = -1;
  result = driver_.mem_handle_for_range(&fd, base, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE) {
    return Status(Code::kUnavailable,
                  "the driver makes no dma-buf of the memory of " + facts_.name);
  }
  if (result != CUDA_SUCCESS) return note(to_runtime(result), "exporting a dma-buf");
  return DmaBuf{.fd = UniqueFd(fd), .offset = 0, .bytes = bytes};
}

Result<DeviceAddress> CudaDevice::import_ipc(const std::array<std::byte, 64>& handle,
                                             uint64_t bytes) {
  const auto has_it = [&](const auto& import) {
    return import.second.sharing == Sharing::kIpc && import.second.ipc == handle;
  };
  if (std::any_of(imports_.begin(), imports_.end(), has_it)) {
    return Status(Code::kInvalidArgument, "the memory of this handle is mapped here already");
  }
  cudaIpcMemHandle_t ipc{};
  std::memcpy(&ipc, handle.data(), sizeof ipc);
  void* found = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&found, ipc, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) return note(error, "opening another process's device memory");
  imports_.emplace(address_of(found),
                   Import{.sharing = Sharing::kIpc, .ipc = handle, .bytes = bytes});
  return address_of(found);
}

Result<DeviceAddress> CudaDevice::import_fd(const MemoryHandle& handle) {
  Import import{.sharing = Sharing::kFd, .bytes = handle.bytes};
  const CUresult result =
      vmm_import(driver_, options_.ordinal, handle.fd, handle.bytes, import.vmm);
  if (result != CUDA_SUCCESS) {
    return note(to_runtime(result), "mapping another process's device memory");
  }
  imports_.emplace(import.vmm.base, import);
  return import.vmm.base;
}

Result<DeviceAddress> CudaDevice::import_memory(const MemoryHandle& handle) {
  if (Status status = enter(); !status.is_ok()) return status;
  if (handle.sharing == Sharing::kIpc) return import_ipc(handle.ipc, handle.bytes);
  // The driver would take any number for a descriptor, and returns an error for a mapping of no
  // length.
  if (handle.fd < 0 || handle.bytes == 0) {
    return Status(Code::kInvalidArgument, "this is no handle of device memory");
  }
  return import_fd(handle);
}

Result<DeviceAddress> CudaDevice::join(std::span<const DeviceAddress> imports) {
  if (Status status = enter(); !status.is_ok()) return status;
  if (imports.size() < 2) return Status(Code::kInvalidArgument, "a join is of two at least");
  Import joined{.sharing = Sharing::kFd};
  for (const DeviceAddress piece : imports) {
    const auto found = imports_.find(piece);
    if (found == imports_.end()) {
      return Status(Code::kNotFound, "no imported memory begins at this address");
    }
    if (found->second.sharing != Sharing::kFd || !found->second.pieces.empty()) {
      return Status(Code::kInvalidArgument, "only memory that came by a descriptor can be joined");
    }
    joined.pieces.push_back(found->second.vmm);
    joined.bytes += found->second.bytes;
  }
  return map_pieces(std::move(joined));
}

Result<DeviceAddress> CudaDevice::map_pieces(Import import) {
  DeviceAddress base = 0;
  const CUresult result = vmm_join(driver_, options_.ordinal, import.pieces, base);
  if (result != CUDA_SUCCESS) {
    return note(to_runtime(result), "mapping device memory one behind another");
  }
  imports_.emplace(base, std::move(import));
  return base;
}

Status CudaDevice::can_reach(const DeviceFacts& peer) {
  if (Status status = enter(); !status.is_ok()) return status;
  int can_we = 0;
  int can_it = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can_we, facts_.ordinal, peer.ordinal);
  if (error == cudaSuccess) {
    error = cudaDeviceCanAccessPeer(&can_it, peer.ordinal, facts_.ordinal);
  }
  if (error != cudaSuccess) return note(error, "asking for peer access");
  if (can_we != 0 && can_it != 0) return Status::ok();
  const auto name_of = [](const DeviceFacts& facts) {
    return "GPU " + std::to_string(facts.ordinal) + " (" + facts.name + ')';
  };
  return {Code::kPermission, name_of(facts_) + " and " + name_of(peer) +
                                 " do not reach each other's memory: there is no peer access "
                                 "between them (nvidia-smi topo -p2p rw): let the ranks of a job "
                                 "use GPUs that have it, or hand over host memory"};
}

// An IPC handle may be opened by one context of each GPU of a process (cuda.h, cuIpcOpenMemHandle);
// physical memory belongs to no context.
Result<DeviceAddress> CudaDevice::reach(Device& peer, DeviceAddress base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto& others = static_cast<const CudaDevice&>(peer).imports_;
  const auto found = others.find(base);
  if (found == others.end()) {
    return Status(Code::kNotFound, "no imported memory of the other GPU begins at this address");
  }
  const Import& import = found->second;
  if (import.is_reached) {
    return Status(Code::kInvalidArgument, "the other GPU has this memory from a third");
  }
  if (import.sharing == Sharing::kIpc) {
    Result<DeviceAddress> opened = import_ipc(import.ipc, import.bytes);
    if (opened.is_ok()) imports_.at(opened.value()).is_reached = true;
    return opened;
  }
  Import reached{.sharing = Sharing::kFd, .bytes = import.bytes, .is_reached = true};
  reached.pieces = import.pieces;
  if (reached.pieces.empty()) reached.pieces.push_back(import.vmm);
  return map_pieces(std::move(reached));
}

bool CudaDevice::is_joined(DeviceAddress piece) const {
  return std::any_of(imports_.begin(), imports_.end(), [piece](const auto& import) {
    const auto& pieces = import.second.pieces;
    return std::any_of(pieces.begin(), pieces.end(),
                       [piece](const VmmMemory& memory) { return memory.base == piece; });
  });
}

cudaError_t CudaDevice::close(DeviceAddress base, const Import& import) {
  if (import.sharing == Sharing::kIpc) return cudaIpcCloseMemHandle(pointer(base));
  return to_runtime(import.pieces.empty() ? vmm_free(driver_, import.vmm)
                                          : vmm_part(driver_, base, import.pieces));
}

Status CudaDevice::close_import(DeviceAddress base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto found = imports_.find(base);
  if (found == imports_.end()) {
    return {Code::kNotFound, "no imported memory begins at this address"};
  }
  if (is_joined(base)) {
    return {Code::kInvalidArgument, "imported memory is part of a join, which is closed first"};
  }
  cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = close(base, found->second);
  if (error != cudaSuccess) return note(error, "closing another process's device memory");
  imports_.erase(found);
  return Status::ok();
}

Status CudaDevice::keep_host(std::byte* base, const HostRange& range) {
  void* device_side = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&device_side, base, 0);
  if (error != cudaSuccess) return note(error, "the device's address of pinned memory");
  HostRange& kept = host_[base] = range;
  kept.device_side = address_of(device_side);
  return Status::ok();
}

Result<std::span<std::byte>> CudaDevice::allocate_host(size_t bytes) {
  if (Status status = enter(); !status.is_ok()) return status;
  if (bytes == 0) return Status(Code::kInvalidArgument, "0 bytes of pinned memory are asked for");
  void* found = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&found, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (error != cudaSuccess) return note(error, std::to_string(bytes) + " bytes of pinned memory");
  std::memset(found, 0, bytes);
  auto* const base = static_cast<std::byte*>(found);
  if (Status status = keep_host(base, {.bytes = bytes, .how = Pinned::kAllocated});
      !status.is_ok()) {
    cudaFreeHost(found);
    return status;
  }
  return std::span(base, bytes);
}

Status CudaDevice::free_host(std::byte* base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto found = host_.find(base);
  if (found == host_.end() || found->second.how != Pinned::kAllocated) {
    return {Code::kNotFound, "no pinned memory was allocated here"};
  }
  if (Status status = note(cudaFreeHost(base), "freeing pinned memory"); !status.is_ok()) {
    return status;
  }
  host_.erase(found);
  return Status::ok();
}

Status CudaDevice::register_host(std::span<std::byte> memory) {
  if (Status status = enter(); !status.is_ok()) return status;
  if (memory.empty()) return {Code::kInvalidArgument, "0 bytes are to be pinned"};
  const cudaError_t error = cudaHostRegister(memory.data(), memory.size(),
                                             cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (error != cudaSuccess) return note(error, "pinning host memory");
  Status status = keep_host(memory.data(), {.bytes = memory.size()});
  if (!status.is_ok()) cudaHostUnregister(memory.data());
  return status;
}

Status CudaDevice::unregister_host(std::byte* base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto found = host_.find(base);
  if (found == host_.end() || found->second.how == Pinned::kAllocated) {
    return {Code::kNotFound, "no host memory was registered here"};
  }
  cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess && found->second.how == Pinned::kRegistered) {
    error = cudaHostUnregister(base);
  }
  if (error != cudaSuccess) return note(error, "unpinning host memory");
  host_.erase(found);
  return Status::ok();
}

Status CudaDevice::reach_host(Device& peer, std::byte* base) {
  if (Status status = enter(); !status.is_ok()) return status;
  const auto& others = static_cast<const CudaDevice&>(peer).host_;
  const auto found = others.find(base);
  if (found == others.end()) {
    return {Code::kNotFound, "the other GPU has pinned nothing that begins here"};
  }
  if (host_.contains(base)) return {Code::kInvalidArgument, "this memory is already pinned"};
  return keep_host(base, {.bytes = found->second.bytes, .how = Pinned::kReached});
}

Result<DeviceAddress> CudaDevice::device_side(const void* at, size_t bytes) const {
  const auto* const address = static_cast<const std::byte*>(at);
  const auto next = host_.upper_bound(address);
  if (next != host_.begin()) {
    const auto& [base, range] = *std::prev(next);
    const auto offset = static_cast<size_t>(address - base);
    if (offset <= range.bytes && bytes <= range.bytes - offset) return range.device_side + offset;
  }
  return Status(Code::kInvalidArgument, "the device cannot reach host memory that is not pinned");
}

Result<DeviceAddress> CudaDevice::address_of_host(std::span<const std::byte> memory) {
  if (!health_.is_ok()) return health_;
  return device_side(memory.data(), memory.size());
}

Result<std::unique_ptr<Stream>> CudaDevice::make_stream(Priority priority) {
  if (Status status = enter(); !status.is_ok()) return status;
  return CudaStream::make(*this, priority);
}

// NCCL between GPUs of several processes (nccl/nccl_communicator.h).

Result<CommunicatorId> CudaDevice::make_communicator_id() {
  if (Status status = enter(); !status.is_ok()) return status;
  if (!library().is_ok()) return library().status();
  nccl::UniqueId id;
  const int outcome = library().value().get_unique_id(&id);
  Status status = nccl::to_status(library().value(), nullptr, outcome, "making an id");
  if (!status.is_ok()) return status;
  return id.bytes;
}

Result<std::unique_ptr<Communicator>> CudaDevice::connect(const CommunicatorId& id, int rank,
                                                          int size) {
  if (Status status = enter(); !status.is_ok()) return status;
  if (!library().is_ok()) return library().status();
  return nccl::NcclCommunicator::connect(library().value(),
                                         {.enter = [this] { return enter(); },
                                          .handle_of = [](Stream& stream) -> nccl::CudaStream {
                                            return static_cast<CudaStream&>(stream).handle();
                                          }},
                                         id, rank, size);
}

}  // namespace rueda::gpu::cuda
