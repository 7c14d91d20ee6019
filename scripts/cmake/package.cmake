# `cmake --install`: the programs, what they read, and find_package(dsrun) for C++ users.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dsrun)
install(DIRECTORY runtime DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dsrun FILES_MATCHING PATTERN "*.h")
install(EXPORT dsrunTargets DESTINATION ${package_dir})
configure_package_config_file(scripts/cmake/dsrunConfig.cmake.in ${CMAKE_BINARY_DIR}/dsrunConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/dsrunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/dsrunConfig.cmake ${CMAKE_BINARY_DIR}/dsrunConfigVersion.cmake
              scripts/cmake/libtorch.cmake
        DESTINATION ${package_dir})
foreach(program dsrun dsrund dsrank)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
