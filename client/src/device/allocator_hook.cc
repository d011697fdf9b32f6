#include "client/src/device/allocator_hook.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/src/device/watched_allocations.h"
#include "daemon/base/mutex.h"

namespace rueda::client {
namespace {

// cudaError_t is an enum of the size of an int; 0 is success.
using Malloc = int (*)(void** memory, size_t bytes);
using Free = int (*)(void* memory);

// Written once, before the library's table is.
std::atomic<Malloc> real_malloc{nullptr};
std::atomic<Free> real_free{nullptr};

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

int watched_malloc(void** memory, size_t bytes) {
  const int result = real_malloc.load(std::memory_order_relaxed)(memory, bytes);
  if (result == 0 && memory != nullptr && *memory != nullptr) {
    WatchedAllocations::of_process().allocated(address_of(*memory));
  }
  return result;
}

int watched_free(void* memory) {
  if (memory != nullptr) WatchedAllocations::of_process().freeing(address_of(memory));
  return real_free.load(std::memory_order_relaxed)(memory);
}

// The places in a library that the dynamic linker fills with the address of a function.
using Slots = std::vector<uint64_t*>;

// A library as the dynamic linker has loaded it.
struct Loaded {
  std::string_view wanted;
  std::string path;  // empty: not found
  uint64_t base = 0;
  const ElfW(Dyn) * dynamic = nullptr;
  uint64_t begin = 0;  // addresses of what is loaded
  uint64_t end = 0;
  uint64_t relro_begin = 0;  // what is read-only after it has been filled
  uint64_t relro_end = 0;
};

int look_at(dl_phdr_info* info, size_t /*size*/, void* argument) {
  Loaded& loaded = *static_cast<Loaded*>(argument);
  const std::string_view path = info->dlpi_name;
  if (path.substr(path.rfind('/') + 1) != loaded.wanted) return 0;
  loaded.path = path;
  loaded.base = info->dlpi_addr;
  loaded.begin = UINT64_MAX;
  for (const ElfW(Phdr) & part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
    const uint64_t begin = loaded.base + part.p_vaddr;
    const uint64_t end = begin + part.p_memsz;
    if (part.p_type == PT_LOAD) {
      loaded.begin = std::min(loaded.begin, begin);
      loaded.end = std::max(loaded.end, end);
    } else if (part.p_type == PT_DYNAMIC) {
      loaded.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    } else if (part.p_type == PT_GNU_RELRO) {
      loaded.relro_begin = begin;
      loaded.relro_end = end;
    }
  }
  return 1;
}

#if defined(__x86_64__)
bool is_function_slot(uint64_t type) {
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_X86_64_64;
}
#elif defined(__aarch64__)
bool is_function_slot(uint64_t type) {
  return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64;
}
#else
bool is_function_slot(uint64_t) { return false; }
#endif

// What the dynamic section of a library says of the functions that it imports.
class Imports {
 public:
  explicit Imports(const Loaded& loaded) : base_(loaded.base) {
    for (const ElfW(Dyn)* entry = loaded.dynamic; entry != nullptr && entry->d_tag != DT_NULL;
         ++entry) {
      switch (entry->d_tag) {
        case DT_SYMTAB: symbols_ = at<ElfW(Sym)>(entry); break;
        case DT_STRTAB: names_ = at<char>(entry); break;
        case DT_JMPREL: calls_ = at<ElfW(Rela)>(entry); break;
        case DT_PLTRELSZ: calls_bytes_ = entry->d_un.d_val; break;
        case DT_RELA: others_ = at<ElfW(Rela)>(entry); break;
        case DT_RELASZ: others_bytes_ = entry->d_un.d_val; break;
        default: break;
      }
    }
  }

  Slots slots_of(const char* function) const {
    Slots found;
    if (symbols_ == nullptr || names_ == nullptr) return found;
    for (const auto& [first, bytes] :
         {std::pair(calls_, calls_bytes_), std::pair(others_, others_bytes_)}) {
      if (first == nullptr) continue;
      for (const ElfW(Rela) & entry : std::span(first, bytes / sizeof(ElfW(Rela)))) {
        const char* const name = names_ + symbols_[ELF64_R_SYM(entry.r_info)].st_name;
        if (!is_function_slot(ELF64_R_TYPE(entry.r_info)) || std::strcmp(name, function) != 0) {
          continue;
        }
        found.push_back(reinterpret_cast<uint64_t*>(base_ + entry.r_offset));
      }
    }
    return found;
  }

 private:
  // The GNU dynamic linker has made addresses of these offsets; others leave them as they are.
  template <class T>
  const T* at(const ElfW(Dyn) * entry) const {
    const uint64_t address = entry->d_un.d_ptr;
    return reinterpret_cast<const T*>(address < base_ ? base_ + address : address);
  }

  const uint64_t base_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  const ElfW(Rela) * calls_ = nullptr;
  size_t calls_bytes_ = 0;
  const ElfW(Rela) * others_ = nullptr;
  size_t others_bytes_ = 0;
};

// Returns the function that the library calls, or null. A slot that has not been used yet may lead
// to the dynamic linker, which would write the slot: then the function is looked up.
void* function_of(const Loaded& loaded, const Slots& slots, const char* name) {
  for (const uint64_t* const slot : slots) {
    const uint64_t now = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (now != 0 && (now < loaded.begin || now >= loaded.end)) return reinterpret_cast<void*>(now);
  }
  if (void* const global = ::dlsym(RTLD_DEFAULT, name)) return global;
  void* const library = ::dlopen(loaded.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

Status write(const Loaded& loaded, const Slots& slots, uint64_t function) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (uint64_t* const slot : slots) {
    const uint64_t address = address_of(slot);
    const bool is_read_only =
        address >= loaded.relro_begin / page * page && address < loaded.relro_end / page * page;
    void* const begin = reinterpret_cast<void*>(address / page * page);
    if (is_read_only && ::mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) {
      return {Code::kUnavailable, loaded.path + " cannot be written: " + std::strerror(errno)};
    }
    __atomic_store_n(slot, function, __ATOMIC_RELEASE);
    if (is_read_only) static_cast<void>(::mprotect(begin, page, PROT_READ));
  }
  return Status::ok();
}

// Keeps the library that this function is in loaded to the end of the process: the other one calls
// it.
bool stay_loaded() {
  Dl_info own{};
  link_map* map = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&watched_free), &own, reinterpret_cast<void**>(&map),
                RTLD_DL_LINKMAP) == 0) {
    return false;
  }
  const bool is_program = map->l_name[0] == '\0';
  return is_program || ::dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
}

Status hook(std::string_view library) {
  Loaded loaded{.wanted = library};
  ::dl_iterate_phdr(look_at, &loaded);
  if (loaded.path.empty()) {
    return {Code::kUnavailable, std::string(library) + " is not loaded in this process"};
  }
  const Imports imports(loaded);
  const Slots allocating = imports.slots_of("cudaMalloc");
  const Slots freeing = imports.slots_of("cudaFree");
  if (allocating.empty() || freeing.empty()) {
    return {Code::kUnavailable, loaded.path + " imports no cudaMalloc or no cudaFree"};
  }
  void* const allocate = function_of(loaded, allocating, "cudaMalloc");
  void* const free = function_of(loaded, freeing, "cudaFree");
  if (allocate == nullptr || free == nullptr || !stay_loaded()) {
    return {Code::kUnavailable, loaded.path + " cannot be watched: " +
                                    "cudaMalloc, cudaFree or librueda's own file was not found"};
  }
  real_malloc = reinterpret_cast<Malloc>(allocate);
  real_free = reinterpret_cast<Free>(free);
  // In this order nothing is watched whose end would not be seen.
  Status status = write(loaded, freeing, reinterpret_cast<uint64_t>(&watched_free));
  if (!status.is_ok()) return status;
  return write(loaded, allocating, reinterpret_cast<uint64_t>(&watched_malloc));
}

}  // namespace

Status watch_allocator(std::string_view library) {
  static auto* const mutex = new Mutex;
  static auto* const watched = new std::string;
  const MutexLock lock(*mutex);
  if (*watched == library && !library.empty()) return Status::ok();
  if (library.empty() || !watched->empty()) {
    return {Code::kInvalidArgument, library.empty() ? "the library has no name"
                                                    : *watched +
                                                          " is watched already, and one "
                                                          "library may be"};
  }
  Status status = hook(library);
  if (status.is_ok()) *watched = library;
  return status;
}

}  // namespace rueda::client
