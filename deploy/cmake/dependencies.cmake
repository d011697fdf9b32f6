# Everything comes from Debian 12; deploy/packages.txt lists the packages.
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(systemd REQUIRED IMPORTED_TARGET libsystemd)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
if(RUEDA_TESTS)
  find_package(GTest REQUIRED)
endif()

# Boost.Asio 1.74 misses an include under GCC 12, and its callbacks are all that is used of it.
add_library(rueda_asio INTERFACE)
target_link_libraries(rueda_asio INTERFACE Boost::headers Threads::Threads)
target_compile_options(rueda_asio INTERFACE "SHELL:-include utility")
target_compile_definitions(rueda_asio INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_REGEX
                                                BOOST_ASIO_DISABLE_BOOST_DATE_TIME)
