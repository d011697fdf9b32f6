// Finds the tree and the programs beside a test program. Neither is compiled in, because the
// compiler cache would then miss in every other checkout.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace rueda::testing_support {

// Returns the path of a file of the tree: under RUEDA_TEST_SOURCE_DIR, which ctest sets, or else
// under the current folder.
inline std::string source_path(const std::string& name) {
  const char* root = std::getenv("RUEDA_TEST_SOURCE_DIR");
  return (std::filesystem::path(root != nullptr ? root : ".") / name).string();
}

// Returns the path of a program of the same build.
inline std::string program_path(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

}  // namespace rueda::testing_support
