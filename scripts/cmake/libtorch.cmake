# dsrun::libtorch: LibTorch as one imported target.
#
# LibTorch's own CMake package drags in CUDA language setup; we need only its headers and libraries.
# Looked for in this order: -DLIBTORCH, $LIBTORCH, Torch_DIR (…/share/cmake/Torch), the list DS_TORCH_DEFAULTS.

set(ds_torch_candidates "")
if(LIBTORCH)
  list(APPEND ds_torch_candidates ${LIBTORCH})
elseif(DEFINED ENV{LIBTORCH})
  list(APPEND ds_torch_candidates $ENV{LIBTORCH})
elseif(Torch_DIR)
  list(APPEND ds_torch_candidates ${Torch_DIR}/../../..)
elseif(DEFINED ENV{Torch_DIR})
  list(APPEND ds_torch_candidates $ENV{Torch_DIR}/../../..)
else()
  list(APPEND ds_torch_candidates ${DS_TORCH_DEFAULTS})
endif()

find_path(DS_TORCH_INCLUDE ATen/ATen.h PATHS ${ds_torch_candidates} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT DS_TORCH_INCLUDE)
  message(FATAL_ERROR "LibTorch not found in: ${ds_torch_candidates}\n"
      "Run scripts/setup.sh (fetches it), or configure with -DLIBTORCH=DIR, or with -DDS_TORCH=OFF.")
endif()
get_filename_component(DS_TORCH_ROOT ${DS_TORCH_INCLUDE}/.. ABSOLUTE)

# Newer releases moved the version macros; both places define MAJOR, MINOR and PATCH one a line.
set(ds_torch_version_header ${DS_TORCH_INCLUDE}/torch/headeronly/version.h)
if(NOT EXISTS ${ds_torch_version_header})
  set(ds_torch_version_header ${DS_TORCH_INCLUDE}/torch/csrc/api/include/torch/version.h)
endif()
file(READ ${ds_torch_version_header} ds_torch_version_text)
foreach(part MAJOR MINOR PATCH)
  string(REGEX MATCH "define TORCH_VERSION_${part} ([0-9]+)" _ "${ds_torch_version_text}")
  set(ds_torch_${part} ${CMAKE_MATCH_1})
endforeach()
set(DS_TORCH_VERSION ${ds_torch_MAJOR}.${ds_torch_MINOR}.${ds_torch_PATCH})
if(DS_TORCH_VERSION VERSION_LESS 2.6)
  message(FATAL_ERROR "LibTorch ${DS_TORCH_VERSION} in ${DS_TORCH_ROOT} is too old: 2.6 or newer is needed.")
endif()
message(STATUS "LibTorch ${DS_TORCH_VERSION}: ${DS_TORCH_ROOT}")

# IMPORTED, so that the installed package refers to it by name and finds LibTorch again on its own.
add_library(dsrun::libtorch INTERFACE IMPORTED GLOBAL)
target_include_directories(dsrun::libtorch SYSTEM INTERFACE
    ${DS_TORCH_INCLUDE} ${DS_TORCH_INCLUDE}/torch/csrc/api/include)
target_compile_definitions(dsrun::libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
# The OpenMP runtime that it runs its own loops on: ours belong to the same pool of threads.
file(GLOB ds_torch_openmp ${DS_TORCH_ROOT}/lib/libgomp*.so*)
list(APPEND ds_torch_openmp gomp)
list(GET ds_torch_openmp 0 ds_torch_openmp)
target_link_libraries(dsrun::libtorch INTERFACE
    -Wl,--no-as-needed ${DS_TORCH_ROOT}/lib/libtorch_cpu.so -Wl,--as-needed
    ${DS_TORCH_ROOT}/lib/libc10.so ${ds_torch_openmp} Threads::Threads)
# libtorch_cpu.so of the CUDA wheel links libcudart and libcupti, which its own RPATH finds at run time.
target_link_options(dsrun::libtorch INTERFACE -Wl,--allow-shlib-undefined)
