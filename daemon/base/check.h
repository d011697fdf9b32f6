// RUEDA_CHECK asks for something that must be true unless we made a mistake. If it is false, the
// program aborts, in every build.
#pragma once

namespace rueda::detail {
[[noreturn]] void check_failed(const char* expression, const char* file, int line);
}

#define RUEDA_CHECK(expression) \
  ((expression) ? (void)0 : ::rueda::detail::check_failed(#expression, __FILE__, __LINE__))
