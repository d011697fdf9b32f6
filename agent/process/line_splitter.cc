#include "agent/process/line_splitter.h"

#include <algorithm>

namespace rueda::agent {

void LineSplitter::emit(std::string_view terminator, std::string& out) {
  out += prefix_;
  out += line_;
  out += prefix_.empty() ? terminator : "\n";
  line_.clear();
}

void LineSplitter::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t run = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (run > 0) {
      const size_t taken = std::min(run, kMaxLineBytes - line_.size());
      line_ += bytes.substr(0, taken);
      bytes.remove_prefix(taken);
      has_just_ended_ = false;
      if (line_.size() == kMaxLineBytes) {
        emit("", out);
        has_just_ended_ = true;
      }
      continue;
    }
    const char end = bytes.front();
    bytes.remove_prefix(1);
    if (end == '\r') {
      // A carriage return with nothing before it only moves a cursor; with a prefix it would print
      // an empty line.
      if (!line_.empty() || prefix_.empty()) {
        emit("\r", out);
        has_just_ended_ = true;
      }
    } else if (has_just_ended_) {
      has_just_ended_ = false;
      if (prefix_.empty()) out += '\n';
    } else {
      emit("\n", out);
    }
  }
}

void LineSplitter::finish(std::string& out) {
  if (!line_.empty()) emit("", out);
}

}  // namespace rueda::agent
