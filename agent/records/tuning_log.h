// The log of a job's autotuning: a CSV file, a line for each measurement and each decision
// (docs/operations.md, "Autotuning"). Belongs to one thread at a time.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "daemon/base/status.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::agent {

class TuningLog {
 public:
  // Replaces what is there.
  static Result<std::unique_ptr<TuningLog>> open(const std::string& path);

  // Whoever looks sees the line at once.
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

// The setting that a search came to, for people.
std::string describe_settled(const v1::TuningLine& line);

}  // namespace rueda::agent
