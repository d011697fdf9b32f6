// A folder that goes with its owner, and all that is in it. Its name begins with "rueda-test-":
// what tests of leaks do not take for something that Rueda has left.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "daemon/base/check.h"

namespace rueda::testing_support {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "rueda-test-XXXXXX").string();
    RUEDA_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() { remove(); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};

}  // namespace rueda::testing_support
