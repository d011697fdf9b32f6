# Compiler settings shared by every target, and the switches a builder may turn.
option(RUEDA_TESTS "Build the tests" ON)
option(RUEDA_WHEEL "Install what a wheel holds (pyproject.toml)" OFF)
option(RUEDA_BUNDLE "Link for a bundle that runs elsewhere (deploy/bundle.sh)" OFF)
set(RUEDA_CUDA AUTO CACHE STRING "Build the GPU plugin, librueda_cuda.so: AUTO (if there is nvcc), ON or OFF")
set_property(CACHE RUEDA_CUDA PROPERTY STRINGS AUTO ON OFF)
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

find_program(RUEDA_CCACHE ccache)
if(RUEDA_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${RUEDA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${RUEDA_CCACHE})
endif()

# Every target of the project links this; generated code and tests of other people do not.
add_library(rueda_flags INTERFACE)
target_include_directories(rueda_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(rueda_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                                             -Wno-missing-field-initializers)
target_compile_definitions(rueda_flags INTERFACE RUEDA_VERSION="${PROJECT_VERSION}")

# ThreadSanitizer and Debian's uninstrumented gRPC do not mix: targets that talk to gRPC link
# rueda_flags_grpc, which leaves the instrumentation out but links the runtime (docs/testing.md).
add_library(rueda_flags_grpc INTERFACE)
target_link_libraries(rueda_flags_grpc INTERFACE rueda_flags)

# Sanitizers see our code, not generated code. What UBSan leaves out here costs minutes in Asio's and
# gRPC's templates; the fuzzers, built by clang, check it all.
set(instrument $<NOT:$<BOOL:$<TARGET_PROPERTY:RUEDA_GENERATED>>>)
if(RUEDA_SANITIZE STREQUAL "asan")
  set(asan -fsanitize=address,undefined -fno-sanitize=null,vptr,alignment,object-size
           -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_compile_options("$<${instrument}:${asan}>")
  add_link_options(-fsanitize=address,undefined)
elseif(RUEDA_SANITIZE STREQUAL "tsan")
  add_compile_options(-Wno-tsan -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  add_compile_options(
    $<$<AND:${instrument},$<NOT:$<BOOL:$<TARGET_PROPERTY:RUEDA_NO_TSAN>>>>:-fsanitize=thread>)
elseif(RUEDA_SANITIZE)
  message(FATAL_ERROR "RUEDA_SANITIZE=${RUEDA_SANITIZE} is not known: use asan or tsan")
endif()
