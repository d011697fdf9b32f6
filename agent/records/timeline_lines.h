// Makes the lines of a timeline's file, one for each event. A line is the head of its track and a
// tail, because the events of an operation's tensors differ only in the track.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/v1/timeline.pb.h"

namespace rueda::agent {

void append_number(std::string& text, int64_t number);
// Appends a time in microseconds, with three decimals for the nanoseconds.
void append_us(std::string& text, int64_t ns);

// Makes the tails of one operation's events.
class OperationLines {
 public:
  explicit OperationLines(const v1::TimelineBatch::Operation& operation);

  // Holds the tails of the events, in the order of time, that each of the next `tensors` tensors
  // gets.
  struct Stretch {
    size_t tensors = 0;
    std::vector<std::string> tails;
  };
  // Returns the next stretch, as long as there are tensors left.
  Stretch next(size_t tensors_left);

 private:
  // The position in the list of what a rank had submitted.
  struct Cursor {
    int32_t rank = 0;
    int item = 0;
    int end = 0;
    size_t left = 0;  // the item's remaining tensors
  };
  struct Mark {
    int64_t at_ns;
    int32_t rank;
  };

  std::string span(int64_t begin_ns, int64_t end_ns, std::string_view name) const;

  const v1::TimelineBatch::Operation& operation_;
  const std::string kind_;
  std::string arguments_;  // the arguments of all events of the operation
  std::vector<Cursor> cursors_;
  std::string whole_;  // the tail of the event for the whole operation
};

// Returns the number of events that the batch has in the file.
uint64_t count_events(const v1::TimelineBatch& batch);

// Returns the name of a collective in capitals, such as "ALLREDUCE".
std::string upper_name(uint32_t collective);
// Returns "\"operation\":\"12\"", and the process set if it is not the set of all ranks.
std::string operation_arguments(uint64_t number, uint32_t process_set);

}  // namespace rueda::agent
