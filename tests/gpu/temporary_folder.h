// A folder that goes with its owner, and all that is in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "daemon/base/check.h"

namespace rueda::gpu {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "rueda-gpu-XXXXXX").string();
    RUEDA_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace rueda::gpu
