# `cmake --install`: the programs with the files that they read (component Runtime), and find_package(dsrun) for C++
# users (component Development). The component Python is in wheel.cmake. Everything finds its parts by relative paths, so the tree can be moved.
include(CMakePackageConfigHelpers)

# ds_install_programs(COMPONENT BIN LIB DATA MAN [OPTION ...]): the programs with the files that they read.
function(ds_install_programs component bin lib data man)
  foreach(program dsrun dsrund dsrank)
    if(TARGET ${program})
      install(TARGETS ${program} RUNTIME DESTINATION ${bin} COMPONENT ${component} ${ARGN})
    endif()
  endforeach()
  foreach(plugin ds_cuda_plugin ds_arrow_plugin)
    if(TARGET ${plugin})
      # OPTIONAL: `programs` leaves the CUDA plugin out where nothing can run it.
      install(TARGETS ${plugin} LIBRARY DESTINATION ${lib} COMPONENT ${component} OPTIONAL ${ARGN})
    endif()
  endforeach()
  install(DIRECTORY configs cli/manual DESTINATION ${data}/dsrun COMPONENT ${component} ${ARGN})
  install(FILES ${DS_SHARE}/demo_corpus.txt ${DS_SHARE}/ds_config.md
          DESTINATION ${data}/dsrun COMPONENT ${component} ${ARGN})
  install(FILES ${DS_PAGES}/dsrun.1 DESTINATION ${man}/man1 COMPONENT ${component} ${ARGN})
  install(DIRECTORY ${DS_PAGES}/man7 DESTINATION ${man} COMPONENT ${component} ${ARGN})
  install(FILES ${DS_PAGES}/dsrun
          DESTINATION ${data}/bash-completion/completions COMPONENT ${component} ${ARGN})
  install(FILES ${DS_PAGES}/_dsrun DESTINATION ${data}/zsh/site-functions COMPONENT ${component} ${ARGN})
  install(FILES ${DS_PAGES}/dsrun.fish
          DESTINATION ${data}/fish/vendor_completions.d COMPONENT ${component} ${ARGN})
endfunction()
# Not CMAKE_INSTALL_LIBDIR: the programs look for plugins in ../lib.
ds_install_programs(Runtime ${CMAKE_INSTALL_BINDIR} lib ${CMAKE_INSTALL_DATADIR} ${CMAKE_INSTALL_MANDIR})
include(wheel)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dsrun)
get_property(exported GLOBAL PROPERTY DS_EXPORTED)
install(TARGETS ${exported} EXPORT dsrunTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development)
install(DIRECTORY runtime
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dsrun COMPONENT Development FILES_MATCHING PATTERN "*.h")
install(EXPORT dsrunTargets NAMESPACE dsrun:: DESTINATION ${package_dir} COMPONENT Development)
configure_package_config_file(scripts/cmake/dsrunConfig.cmake.in ${PROJECT_BINARY_DIR}/dsrunConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dsrunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dsrunConfig.cmake ${PROJECT_BINARY_DIR}/dsrunConfigVersion.cmake
              scripts/cmake/libtorch.cmake
        DESTINATION ${package_dir} COMPONENT Development)
if(NOT DS_SANITIZE)  # the symbols of dsrund, in a folder where gdb looks for them
  install(FILES $<TARGET_FILE:dsrund>.debug DESTINATION ${CMAKE_INSTALL_BINDIR}/.debug COMPONENT Development)
endif()
