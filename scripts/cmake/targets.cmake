# Settings that the targets need also within another project. The variables hold in this project's folders only.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# dsrun looks for dsrund, dsrank and the plugins in its own folder, and for ../share/dsrun.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

# ds_set_rpath(TARGET LINK PLACE...): a program or plugin loads libraries from the installed tree's own lib/LINK, a
# link or folder that a user makes for a tree on another machine, and then from the places that the build has found.
# Installing needs no change to the file, so it works with a plugin that is older than the build's rules.
function(ds_set_rpath target link)
  set_target_properties(${target} PROPERTIES
      INSTALL_RPATH "$ORIGIN/../lib/${link};${ARGN}" BUILD_WITH_INSTALL_RPATH ON)
endfunction()

# ds_library(NAME [TORCH] SOURCES ... [DEPS ...] [LINKS ...])
#
# One folder is one static library ds_NAME, which other projects know as dsrun::NAME. DEPS names the folders it
# may include (its row in the layer table, which scripts/check_layers.py also holds the includes to); LINKS names
# outside libraries. TORCH marks code that includes LibTorch: it gets LibTorch and the shared precompiled header.
# Libraries of runtime/ are installed: their names are in the global property DS_EXPORTED.
function(ds_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS;LINKS" ${ARGN})
  if(ARG_TORCH AND NOT DS_TORCH)
    return()
  endif()
  add_library(ds_${name} STATIC ${ARG_SOURCES})
  add_library(dsrun::${name} ALIAS ds_${name})
  target_compile_features(ds_${name} PUBLIC cxx_std_20)
  target_include_directories(ds_${name} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/dsrun>)
  list(TRANSFORM ARG_DEPS PREPEND ds_)
  target_link_libraries(ds_${name} PUBLIC ${ARG_DEPS} ${ARG_LINKS})
  if(ARG_TORCH)
    target_link_libraries(ds_${name} PUBLIC ds_libtorch)
    ds_use_torch_pch(ds_${name})
  endif()
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/runtime")
    set_target_properties(ds_${name} PROPERTIES EXPORT_NAME ${name})
    set_property(GLOBAL APPEND PROPERTY DS_EXPORTED ds_${name})
  endif()
endfunction()
