// Sets of CPUs, written as Linux and systemd do: "0-3,8".
#pragma once

#include <string>
#include <vector>

#include <sched.h>

#include "daemon/base/status.h"

namespace rueda {

// Returns the CPUs of the text, in ascending order, each once. The error is kInvalidArgument, and
// names what is wrong.
Result<std::vector<int>> parse_cpus(const std::string& text);
std::string to_string(const std::vector<int>& cpus);

// Returns share `index` of `count` nearly equal shares of the CPUs; empty if there are fewer than
// `count`.
std::vector<int> share_of(const std::vector<int>& cpus, int index, int count);

// Returns the CPUs that the calling thread may run on.
std::vector<int> allowed_cpus();
// Returns the CPUs in the system's form.
cpu_set_t set_of(const std::vector<int>& cpus);
// Makes the calling thread, and the threads that it starts from now on, run on these CPUs alone.
// The error is kInvalidArgument if none of them can be had.
[[nodiscard]] Status keep_to_cpus(const std::vector<int>& cpus);

}  // namespace rueda
