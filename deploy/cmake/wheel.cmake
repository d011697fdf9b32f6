# A wheel holds, beside the Python files (pyproject.toml), bin/ and lib/ in the package's folder, with every shared library that
# the programs need but those of the C and C++ runtime.
# librueda has no version in its name there, as the package is one version of everything, and a wheel has no symbolic links: librueda_mpi
# is loaded by jaxlib, perhaps before Python has loaded librueda, and finds it beside itself by that name.
set_property(TARGET rueda PROPERTY VERSION)
set_property(TARGET rueda PROPERTY SOVERSION)
install(TARGETS rueda rueda_mpi LIBRARY DESTINATION lib COMPONENT wheel)
if(RUEDA_BUILD_JAX)
  install(TARGETS rueda_jax LIBRARY DESTINATION lib COMPONENT wheel)
endif()
install(FILES $<TARGET_FILE:rueda_tensorflow> DESTINATION lib COMPONENT wheel)

# An RPATH is used, and not a RUNPATH, because the libraries look for each other there, too.
set(programs ruedad ruedarun ruedactl)
set(program_files "")
foreach(program IN LISTS programs)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${program} PRIVATE LINKER:--disable-new-dtags)
  string(APPEND program_files " \"$<TARGET_FILE:${program}>\"")
endforeach()
install(TARGETS ${programs} RUNTIME DESTINATION bin COMPONENT wheel)

# A wheel has no symbolic links: each library is one file, by the name that programs ask for.
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program_files} RESOLVED_DEPENDENCIES_VAR libraries
       PRE_EXCLUDE_REGEXES [[^(libc|libm|libgcc_s|libstdc\\+\\+|ld-linux[-a-z0-9_]*)\\.so\\.]])
  foreach(library IN LISTS libraries)
    get_filename_component(name \${library} NAME)
    file(REAL_PATH \${library} file)
    file(COPY_FILE \${file} \${CMAKE_INSTALL_PREFIX}/lib/\${name})
  endforeach()" COMPONENT wheel)
