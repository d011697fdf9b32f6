// Sees what an allocator of device memory allocates and frees, by taking the place of cudaMalloc
// and cudaFree in one shared library: the second way of Awan et al. (2019), section V-B, to keep a
// pointer cache right. The allocator is PyTorch's, which is in libc10_cuda.so.
#pragma once

#include <string_view>

#include "daemon/base/status.h"

namespace rueda::client {

// Makes a library's calls of cudaMalloc and cudaFree go through WatchedAllocations::of_process(),
// from now on and to the end of the process. `library` is its file name, without folders; the
// library must be loaded. Only its own table of imported functions is written: no other library
// notices. Another call for the same library does nothing. Thread-safe.
//
// Returns kUnavailable, and leaves everything as it is, if the library is not loaded, does not
// import both functions from a shared library, or cannot be written; kInvalidArgument if another
// library is watched already.
Status watch_allocator(std::string_view library);

}  // namespace rueda::client
