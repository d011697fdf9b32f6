# Has the compiler settings that every target shares, and the switches that a builder may turn.
option(RUEDA_TESTS "Build the tests" ON)
option(RUEDA_WHEEL "Install what a wheel holds (pyproject.toml)" OFF)
option(RUEDA_BUNDLE "Link for a bundle that runs elsewhere (deploy/bundle.sh)" OFF)
set(RUEDA_CUDA AUTO CACHE STRING "Build the GPU plugin, librueda_cuda.so: AUTO (if there is nvcc), ON or OFF")
set_property(CACHE RUEDA_CUDA PROPERTY STRINGS AUTO ON OFF)
option(RUEDA_FULL_DEBUG_INFO "Everything that a debugger may ask for, in optimised builds too" OFF)
set(RUEDA_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, asan (with UBSan) or tsan")
set_property(CACHE RUEDA_SANITIZE PROPERTY STRINGS "" asan tsan)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Debug information has line tables and names of functions, for backtraces and profiles; all of it (the preset `debug`) takes half
# as long again to compile. Every build has the same flags, those of the sanitizers too, so that code that is not instrumented
# there is compiled once.
if(NOT RUEDA_FULL_DEBUG_INFO)
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
endif()

# Several checkouts, and the builds of one, share what ccache holds: paths count from the root of the tree.
find_program(RUEDA_CCACHE ccache)
if(RUEDA_CCACHE)
  set(ccache_launcher /usr/bin/env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${RUEDA_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher})
endif()

# lld links in a third of the time that GNU ld takes.
find_program(RUEDA_LLD ld.lld)
if(RUEDA_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Every target of the project links this; generated code and tests of other people do not.
add_library(rueda_flags INTERFACE)
target_include_directories(rueda_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(rueda_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                                             -Wno-missing-field-initializers)
target_compile_definitions(rueda_flags INTERFACE RUEDA_VERSION="${PROJECT_VERSION}")

# Targets that talk to gRPC link this, and leave the thread sanitizer's instrumentation out (RUEDA_PLAIN): Debian's
# uninstrumented gRPC and the sanitizer do not mix (docs/testing.md).
add_library(rueda_flags_grpc INTERFACE)
target_link_libraries(rueda_flags_grpc INTERFACE rueda_flags)

# RUEDA_PLAIN of a target, or a folder's variable of that name: the sanitizers under which it is compiled as in a release
# build, with the very same flags, so that the compiler cache has it already. It is linked with their run time all the same.
# With RUEDA_INSTRUMENT_ALL, and the address sanitizer, only what says `always` is left out.
option(RUEDA_INSTRUMENT_ALL "Instrument launcher, tools and tests too, for the address sanitizer" OFF)
define_property(TARGET PROPERTY RUEDA_PLAIN INITIALIZE_FROM_VARIABLE RUEDA_PLAIN)
if(RUEDA_INSTRUMENT_ALL AND RUEDA_SANITIZE STREQUAL "asan")
  set(plain $<IN_LIST:always,$<TARGET_PROPERTY:RUEDA_PLAIN>>)
else()
  set(plain $<IN_LIST:${RUEDA_SANITIZE},$<TARGET_PROPERTY:RUEDA_PLAIN>>)
endif()

# The checks of UBSan that are left out here cost minutes in Asio's and gRPC's templates; the fuzzers, built by clang, have all of
# them.
if(RUEDA_SANITIZE STREQUAL "asan")
  set(sanitizer -fsanitize=address,undefined -fno-sanitize=null,vptr,alignment,object-size -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
elseif(RUEDA_SANITIZE STREQUAL "tsan")
  set(sanitizer -fsanitize=thread -Wno-tsan)
  add_link_options(-fsanitize=thread)
elseif(RUEDA_SANITIZE)
  message(FATAL_ERROR "RUEDA_SANITIZE=${RUEDA_SANITIZE} is not known: use asan or tsan")
endif()
if(RUEDA_SANITIZE)
  add_compile_options("$<$<NOT:${plain}>:-O1;-UNDEBUG;-fno-omit-frame-pointer;${sanitizer}>")
endif()

# rueda_light(SOURCE...): does not optimise these sources of the folder. They are units whose libraries (CLI11, Boost.Beast, JSON)
# take long to compile, and which run once, or a few times a minute. They stay out of unity batches (ALONE), and come late on the
# link line: of an inline function that several units have, the linker takes the first one that it meets.
function(rueda_light)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O0)
endfunction()
