// Turns a stream of bytes into whole lines with a prefix, so that lines of many ranks never mix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rueda::agent {

class LineSplitter {
 public:
  // A longer line is cut into pieces of this size, each a line of its own.
  static constexpr size_t kMaxLineBytes = 64 * 1024;

  // `prefix` goes before every line. If it is empty the bytes pass unchanged, but still in whole
  // lines.
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes bytes that were read, and appends the lines that are complete now to `out`. A carriage
  // return ends a line as well: progress bars would otherwise be held back until they are done.
  void feed(std::string_view bytes, std::string& out);
  // Appends the rest of an unfinished last line, if there is one.
  void finish(std::string& out);

 private:
  void emit(std::string_view terminator, std::string& out);

  std::string prefix_;
  std::string line_;
  // If true, a newline that comes next belongs to the line that was output last.
  bool has_just_ended_ = false;
};

}  // namespace rueda::agent
