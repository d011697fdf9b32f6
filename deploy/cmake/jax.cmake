# Decides whether librueda_jax.so is built (RUEDA_BUILD_JAX): where it is told of XLA's headers, which jaxlib ships. Nothing else
# needs them. Those of jaxlib 0.5.3 make one library for that version and all later ones; older versions refuse what later headers
# make (docs/decisions/0092-what-tensorflow-and-jax-carry.md).
set(RUEDA_JAX_INCLUDE "" CACHE PATH
    "Folder with xla/ffi/api of jaxlib 0.5.3, which jax.ffi.include_dir() gives; empty: librueda_jax.so is not built")
set(RUEDA_BUILD_JAX OFF)
# A Python without the sanitizers' runtime cannot load an instrumented library.
if(RUEDA_JAX_INCLUDE AND NOT RUEDA_SANITIZE)
  set(jax_header ${RUEDA_JAX_INCLUDE}/xla/ffi/api/c_api.h)
  if(NOT EXISTS ${jax_header})
    message(FATAL_ERROR "RUEDA_JAX_INCLUDE=${RUEDA_JAX_INCLUDE} has no xla/ffi/api/c_api.h: give the folder that "
                        "jax.ffi.include_dir() of JAX 0.5.3 returns, or nothing")
  endif()
  file(STRINGS ${jax_header} jax_minor REGEX "^#define XLA_FFI_API_MINOR ")
  if(NOT jax_minor MATCHES " 1$")
    message(FATAL_ERROR "RUEDA_JAX_INCLUDE=${RUEDA_JAX_INCLUDE} is of another version of XLA's interface than 0.1, and the library "
                        "would not be served by older ones: give the headers of jaxlib 0.5.3")
  endif()
  set(RUEDA_BUILD_JAX ON)
endif()
message(STATUS "librueda_jax: ${RUEDA_BUILD_JAX}")
