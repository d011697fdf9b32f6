// Where no exception may pass: at the top of what a loop, or a thread, does for somebody. Memory
// that is not there is to cost whoever asked for it his job, and not the node its daemon.
#pragma once

#include <exception>
#include <string>

namespace rueda {

// Does it. If that throws, `failed` is told what; it is not to throw.
template <class Work, class Failed>
void without_exception(const Work& work, const Failed& failed) {
  try {
    work();
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {
    failed("an exception of an unknown kind");
  }
}

}  // namespace rueda
