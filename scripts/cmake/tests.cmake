# Code that only tests run: -O2 takes a quarter more of the compiler's time and saves the tests nothing.
# The precompiled header of -O2 serves -O1, too. Under a sanitizer -O1 takes the compiler twice as long as
# -O0, for the checks of what GoogleTest's macros expand to.
function(ds_use_test_options target)
  if(DS_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# ds_test(NAME [TORCH] SOURCES ... [LINKS ...] [ENV ...] [LABELS ...] [TIMEOUT seconds] [NIGHTLY pattern])
#
# One executable and one ctest entry; NAME is "<kind>.<what>", for example unit.base. Tests of it that the
# pattern of GoogleTest matches take too long for every run: they are an entry of their own, "<NAME>.nightly",
# which ctest leaves out but with -C nightly.
function(ds_test name)
  cmake_parse_arguments(ARG "TORCH;SERIAL" "TIMEOUT;NIGHTLY" "SOURCES;LINKS;ENV;LABELS" ${ARGN})
  if(ARG_TORCH AND NOT DS_TORCH)
    return()
  endif()
  string(REPLACE "." "_" target test_${name})
  add_executable(${target} ${ARG_SOURCES})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  ds_use_test_options(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LINKS} GTest::gmock GTest::gtest GTest::gtest_main)
  if(ARG_TORCH)
    target_link_libraries(${target} PRIVATE ds_test_seed)
    ds_use_torch_pch(${target})
  endif()
  set(of_every_run)
  if(ARG_NIGHTLY)
    set(of_every_run "--gtest_filter=-${ARG_NIGHTLY}")
    add_test(NAME ${name}.nightly COMMAND ${target} "--gtest_filter=${ARG_NIGHTLY}" CONFIGURATIONS nightly)
    set_tests_properties(${name}.nightly PROPERTIES TIMEOUT 14400 LABELS nightly
        ENVIRONMENT "OMP_NUM_THREADS=1;${ARG_ENV}")
  endif()
  add_test(NAME ${name} COMMAND ${target} ${of_every_run})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)  # only against hanging: a busy machine takes ten times as long as a quiet one
  endif()
  # One thread per test process keeps reductions in one order and two tests from fighting for cores.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT "OMP_NUM_THREADS=1;${ARG_ENV}")
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
  if(ARG_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
