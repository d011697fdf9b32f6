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

  // `prefix` goes before every line. With an empty one the bytes pass as they are, but still by
  // whole lines.
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes what was read and appends the lines that are complete now to `out`. A carriage return
  // ends a line as well: progress bars would otherwise be held back until their last word.
  void feed(std::string_view bytes, std::string& out);
  // Appends what is left of an unfinished last line, if anything.
  void finish(std::string& out);

 private:
  void emit(std::string_view terminator, std::string& out);

  std::string prefix_;
  std::string line_;
  // A newline that comes next belongs to the line that was put out last.
  bool has_just_ended_ = false;
};

}  // namespace rueda::agent
