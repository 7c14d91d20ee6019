# Warnings, sanitizers, compiler cache and a fast linker: how everything here is compiled, where dsrun is the
# project that is built.
option(DS_UNITY "Compile sources in batches: half the time from scratch, more after a small edit" OFF)
set(DS_SANITIZE "" CACHE STRING "Sanitizers to build with, as in -fsanitize= (address,undefined or thread)")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Most of a file's time goes into the headers and templates that its neighbours need, too.
set(CMAKE_UNITY_BUILD ${DS_UNITY})

# For the host compiler only: nvcc takes other options.
set(ds_host $<COMPILE_LANGUAGE:C,CXX>)
add_compile_options("$<${ds_host}:-Wall;-Wextra;-Wno-missing-field-initializers;-fno-omit-frame-pointer>")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

if(DS_SANITIZE)
  # The checks of ASan and UBSan keep -O1 busy for 1.7 times as long as -O0, and the tests wait more than they compute.
  # TSan's tests compute more.
  if(DS_SANITIZE MATCHES "thread")
    set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1 -DNDEBUG")
  else()
    set(CMAKE_CXX_FLAGS_RELEASE "-O0 -g1 -DNDEBUG")
  endif()
  add_compile_options("$<${ds_host}:-fsanitize=${DS_SANITIZE};-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${DS_SANITIZE})
endif()

find_program(DS_CCACHE ccache)
if(DS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A cache that cannot be written (a read-only HOME) fails every compilation.
  file(WRITE ${PROJECT_BINARY_DIR}/ccache_probe.c "int probe;\n")
  execute_process(COMMAND ${DS_CCACHE} ${CMAKE_C_COMPILER} -c ${PROJECT_BINARY_DIR}/ccache_probe.c
                          -o ${PROJECT_BINARY_DIR}/ccache_probe.o
                  RESULT_VARIABLE ds_ccache_status OUTPUT_QUIET ERROR_QUIET)
  if(NOT ds_ccache_status EQUAL 0)
    message(STATUS "ccache: no (it cannot write its cache)")
    set(DS_CCACHE "")
  endif()
endif()
if(DS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for before it caches users of a precompiled header. With paths
  # relative to the build folder what one checkout compiled serves the others.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${DS_CCACHE})
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

# mold before lld before the default: linking dominates the rebuild after a one-line change. A cross compiler would
# look for either by a name with its own prefix, which Debian has not.
if(NOT CMAKE_CROSSCOMPILING)
  find_program(DS_MOLD mold)
  find_program(DS_LLD ld.lld)
endif()
if(DS_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(DS_LLD)
  add_link_options(-fuse-ld=lld)
endif()
