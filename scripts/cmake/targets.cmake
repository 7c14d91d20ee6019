# ds_library(NAME [TORCH] SOURCES ... [DEPS ...] [LINKS ...])
#
# One folder is one static library ds_NAME. DEPS names the folders it may include (its row in the
# layer table, which scripts/check_layers.py also holds the includes to); LINKS names outside libraries.
# TORCH marks code that includes LibTorch: it gets LibTorch and the shared precompiled header.
function(ds_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS;LINKS" ${ARGN})
  if(ARG_TORCH AND NOT DS_TORCH)
    return()
  endif()
  add_library(ds_${name} STATIC ${ARG_SOURCES})
  target_include_directories(ds_${name} PUBLIC
      $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/dsrun>)
  list(TRANSFORM ARG_DEPS PREPEND ds_)
  target_link_libraries(ds_${name} PUBLIC ${ARG_DEPS} ${ARG_LINKS})
  if(ARG_TORCH)
    target_link_libraries(ds_${name} PUBLIC ds_libtorch)
    ds_use_torch_pch(ds_${name})
  endif()
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/runtime")
    install(TARGETS ds_${name} EXPORT dsrunTargets)
  endif()
endfunction()
