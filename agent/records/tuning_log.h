// Writes the log of a job's autotuning: a CSV file with a line for each measurement and each
// decision (docs/operations.md, "Autotuning"). An object belongs to one thread at a time.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "daemon/base/status.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::agent {

class TuningLog {
 public:
  // Opens the file, and replaces one that is there.
  static Result<std::unique_ptr<TuningLog>> open(const std::string& path);

  // Writes a line, which readers of the file see at once.
  Status write(const v1::TuningLine& line);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  TuningLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  Status put(const std::string& text);

  const std::string path_;
  const std::unique_ptr<std::FILE, Closer> file_;
};

// Describes the setting that a search arrived at, for the user.
std::string describe_settled(const v1::TuningLine& line);

}  // namespace rueda::agent
