# `cmake --install` puts files where this says. Programs and the client library are separate components, because a training
# machine's image needs the second alone.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS ruedad ruedarun ruedactl rueda-bench rueda-sim
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)

if(TARGET rueda_cuda)
  install(TARGETS rueda_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT programs)
endif()

# The unit starts the daemon from where it is installed.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/deploy/systemd/ruedad.service)
file(READ ${PROJECT_SOURCE_DIR}/deploy/systemd/ruedad.service unit)
string(REPLACE "/usr/bin/ruedad" "${CMAKE_INSTALL_FULL_BINDIR}/ruedad" unit "${unit}")
file(WRITE ${PROJECT_BINARY_DIR}/ruedad.service "${unit}")
install(FILES ${PROJECT_BINARY_DIR}/ruedad.service DESTINATION lib/systemd/system COMPONENT programs)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/rueda-sysusers.conf DESTINATION lib/sysusers.d
        RENAME rueda.conf COMPONENT programs)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/rueda-tmpfiles.conf DESTINATION lib/tmpfiles.d
        RENAME rueda.conf COMPONENT programs)
# The files are examples, because what stands in /etc belongs to the administrator.
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/ruedad.toml ${PROJECT_SOURCE_DIR}/deploy/systemd/ruedad-network.conf DESTINATION ${CMAKE_INSTALL_DOCDIR}
        COMPONENT programs)

install(TARGETS rueda rueda_tensorflow rueda_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
if(RUEDA_BUILD_JAX)
  install(TARGETS rueda_jax LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/include/rueda
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT client FILES_MATCHING PATTERN "*.h*")

# Debian's python3 looks there: one directory for packages, one a version for the rest.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(python_dir lib/python3/dist-packages)
else()
  set(python_dir lib/python${Python3_VERSION_MAJOR}.${Python3_VERSION_MINOR}/dist-packages)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/python/rueda DESTINATION ${python_dir}
        COMPONENT client FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")

# The path is relative, so that an installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/rueda.pc.in ${PROJECT_BINARY_DIR}/rueda.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rueda.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT client)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rueda)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/rueda-config.cmake.in
                              ${PROJECT_BINARY_DIR}/rueda-config.cmake
                              INSTALL_DESTINATION ${package_dir}
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rueda-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rueda-config.cmake ${PROJECT_BINARY_DIR}/rueda-config-version.cmake
        DESTINATION ${package_dir} COMPONENT client)
