# This file says what a bundle holds (deploy/bundle.sh): programs and tests in bin/, and in lib/ every shared library that they
# need but libc's. Libraries without an archive in Debian are copied, and so is libstdc++, because those libraries need it too,
# and two of it in one process would not get on. librueda alone, which Python loads beside PyTorch's, brings its own and shows
# none of it.
target_link_options(rueda PRIVATE -static-libstdc++ -static-libgcc)
install(TARGETS rueda rueda_tensorflow LIBRARY DESTINATION lib COMPONENT bundle)

set(programs ruedad ruedarun ruedactl rueda-bench rueda-gpu-bench rueda-gpu-job-bench gpu_test gpu_conformance_test)
set(plugins "")
foreach(plugin rueda_cuda gpu_plugin_no_symbol gpu_plugin_fake gpu_plugin_other_release gpu_plugin_other_version)
  if(TARGET ${plugin})
    list(APPEND plugins ${plugin})
  endif()
endforeach()
# An RPATH is used, and not a RUNPATH, because the libraries look for each other there, too.
set(program_files "")
foreach(target IN LISTS programs plugins)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endforeach()
foreach(program IN LISTS programs)
  string(APPEND program_files " \"$<TARGET_FILE:${program}>\"")
endforeach()
install(TARGETS ${programs} RUNTIME DESTINATION bin COMPONENT bundle)
if(plugins)
  install(TARGETS ${plugins} LIBRARY DESTINATION lib COMPONENT bundle)
endif()

install(CODE "
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program_files} RESOLVED_DEPENDENCIES_VAR libraries
       PRE_EXCLUDE_REGEXES [[^(libc|libm|libdl|librt|libpthread|ld-linux[-a-z0-9_]*|librueda)\\.so\\.]])
  foreach(library IN LISTS libraries)
    get_filename_component(name \${library} NAME)
    file(REAL_PATH \${library} file)
    file(COPY_FILE \${file} \${CMAKE_INSTALL_PREFIX}/lib/\${name})
  endforeach()" COMPONENT bundle)

add_custom_target(bundle DEPENDS ${programs} ${plugins} rueda rueda_tensorflow)
