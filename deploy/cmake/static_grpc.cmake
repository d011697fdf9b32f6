# For a bundle, gRPC, protobuf and what they are made of come out of archives. Debian's CMake packages know the shared libraries
# alone, so their targets are given other files; the compilation stays the same.
execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --static --libs-only-l grpc++ protobuf
                OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "-l[^ ]+" flags "${flags}")
# pkg-config does not name all that gRPC's archives ask for.
list(APPEND flags -lgrpc++_reflection -lgrpc++ -lgrpc -lgpr -lupb -laddress_sorting -lre2 -lcares -lssl -lcrypto -lz)
list(REMOVE_DUPLICATES flags)
set(archives "")
foreach(flag IN LISTS flags)
  string(SUBSTRING ${flag} 2 -1 name)
  # These libraries are libc's, or the compiler's.
  if(name MATCHES "^(atomic|dl|m|pthread|rt)$")
    continue()
  endif()
  find_library(RUEDA_ARCHIVE_${name} NAMES lib${name}.a REQUIRED)
  mark_as_advanced(RUEDA_ARCHIVE_${name})
  string(APPEND archives "  ${RUEDA_ARCHIVE_${name}}\n")
endforeach()

# The archives ask for each other in circles. To the linker a script is a library, and to CMake one item, which it neither repeats
# nor takes apart.
set(RUEDA_STATIC_GRPC ${PROJECT_BINARY_DIR}/libgrpc_static.ld)
file(CONFIGURE OUTPUT ${RUEDA_STATIC_GRPC} CONTENT "GROUP (\n${archives})\n" @ONLY)
foreach(target gRPC::grpc++ gRPC::grpc++_reflection protobuf::libprotobuf OpenSSL::Crypto OpenSSL::SSL)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration "" ${configurations})
    string(REGEX REPLACE "^(.+)$" "_\\1" suffix "${configuration}")
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION${suffix} ${RUEDA_STATIC_GRPC}
                                               IMPORTED_SONAME${suffix} ""
                                               IMPORTED_LINK_DEPENDENT_LIBRARIES${suffix} ""
                                               IMPORTED_LINK_INTERFACE_LIBRARIES${suffix} "")
  endforeach()
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS}")
endforeach()
