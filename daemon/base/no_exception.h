// Stops exceptions at the top of what a loop, or a thread, does for somebody. If memory is out,
// whoever asked for it must lose his job, and not the node its daemon.
#pragma once

#include <exception>
#include <string>

namespace rueda {

// Calls `work`. If that throws, `failed` is called with the reason; it must not throw.
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
