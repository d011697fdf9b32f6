#include "daemon/gpu/load.h"

#include <cstring>
#include <filesystem>
#include <system_error>

#include <dlfcn.h>

namespace rueda::gpu {
namespace {

std::string default_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return kPluginFile;
  const auto beside = program.parent_path().parent_path() / "lib" / kPluginFile;
  return std::filesystem::exists(beside, error) ? beside.string() : kPluginFile;
}

Status cannot_load(const std::string& path) {
  const char* reason = ::dlerror();
  const std::string text = reason != nullptr ? reason : "no reason is known";
  std::error_code error;
  // The system looks for a name without a slash in its folders. If a file is there, the error has
  // another reason.
  if (!std::filesystem::exists(path, error) && text.find(path) == 0) {
    return {Code::kNotFound, "there is no GPU plugin: " + text};
  }
  return {Code::kUnavailable, "the GPU plugin cannot be loaded: " + text};
}

}  // namespace

Result<const PluginTable*> load_plugin(const std::string& path) {
  const std::string file = path.empty() ? default_path() : path;
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return cannot_load(file);
  const auto entry = reinterpret_cast<PluginEntry>(::dlsym(library, kPluginSymbol));
  if (entry == nullptr) {
    ::dlclose(library);
    return Status(Code::kVersion, file + " is no GPU plugin: it lacks " + kPluginSymbol);
  }
  const PluginTable* const table = entry();
  if (table->version != kPluginVersion || std::strcmp(table->release, RUEDA_VERSION) != 0) {
    return Status(Code::kVersion, "the GPU plugin " + file + " is of version " +
                                      std::to_string(table->version) + " (" + table->release +
                                      "), this program of " + std::to_string(kPluginVersion) +
                                      " (" RUEDA_VERSION "): install both from one build");
  }
  return table;
}

}  // namespace rueda::gpu
