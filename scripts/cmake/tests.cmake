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

# `ninja quick_tests`: the test programs of the entries with the label "quick".
add_custom_target(quick_tests)

# ds_test_program(NAME [QUICK] [TORCH] [GRPC])
#
# The executable test_NAME, which the sources of several ctest entries are compiled into. QUICK: its entries have
# the label "quick", the tests that CI runs first. TORCH: its tests use LibTorch; with DS_TORCH=OFF the program and
# its entries are left out. GRPC: its tests open encrypted channels in the test process.
function(ds_test_program name)
  cmake_parse_arguments(ARG "QUICK;TORCH;GRPC" "" "" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY DS_TEST_PROGRAMS ${name})
  if(ARG_TORCH AND NOT DS_TORCH)
    return()
  endif()
  set(target test_${name})
  add_executable(${target})
  # Headers of GoogleTest and LibTorch take four to twelve seconds a batch, a source takes two.
  set_target_properties(${target} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests UNITY_BUILD_BATCH_SIZE 16)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  ds_use_test_options(${target})
  target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest GTest::gtest_main)
  if(ARG_QUICK)
    set_target_properties(${target} PROPERTIES LABELS quick)
    add_dependencies(quick_tests ${target})
  endif()
  if(ARG_GRPC)
    target_link_libraries(${target} PRIVATE ds_test_openssl)
  endif()
  if(ARG_TORCH)
    target_link_libraries(${target} PRIVATE ds_test_seed)
    ds_use_torch_pch(${target})
  endif()
endfunction()

# Sets `result` to the patterns of GoogleTest that match the tests of `sources` with names like `test`. A suite
# that stands in two entries of one program would run in both: it is an error.
function(ds_test_patterns result entry program sources test)
  set(patterns)
  foreach(source ${sources})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} lines REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST)\\(")
    foreach(line ${lines})
      if(NOT line MATCHES "^(TEST|TEST_F|TEST_P|TYPED_TEST)\\(([A-Za-z0-9_]+)")
        continue()
      endif()
      set(suite ${CMAKE_MATCH_2})
      if(CMAKE_MATCH_1 STREQUAL TEST_P)
        list(APPEND patterns "*/${suite}.${test}")
      elseif(CMAKE_MATCH_1 STREQUAL TYPED_TEST)
        list(APPEND patterns "${suite}/*.${test}")
      else()
        list(APPEND patterns "${suite}.${test}")
      endif()
      get_property(owner GLOBAL PROPERTY DS_TEST_ENTRY_OF_${program}_${suite})
      if(owner AND NOT owner STREQUAL entry)
        message(FATAL_ERROR "Suite ${suite} stands in ${owner} and ${entry}, which share test_${program}")
      endif()
      set_property(GLOBAL PROPERTY DS_TEST_ENTRY_OF_${program}_${suite} ${entry})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES patterns)
  if(NOT patterns)
    message(FATAL_ERROR "No source of ${entry} defines a test")
  endif()
  list(JOIN patterns ":" patterns)
  set(${result} ${patterns} PARENT_SCOPE)
endfunction()

# ds_test(NAME [PROGRAM program] SOURCES ... [LINKS ...] [ENV ...] [LABELS ...] [TIMEOUT seconds] [COST seconds]
#         [SERIAL] [NIGHTLY pattern])
#
# One ctest entry: a process of its own that runs the suites of SOURCES in the executable of its program. NAME is
# "<kind>.<what>", for example unit.base; without PROGRAM the kind names the program. ctest starts the entries with
# the highest COST first where it has no times of an earlier run. SERIAL entries run alone, and have the label
# "serial". Tests with names that
# NIGHTLY matches take too long for every run: they are an entry of their own, "<NAME>.nightly", which ctest
# leaves out but with -C nightly.
function(ds_test name)
  cmake_parse_arguments(ARG "SERIAL" "PROGRAM;TIMEOUT;COST;NIGHTLY" "SOURCES;LINKS;ENV;LABELS" ${ARGN})
  if(NOT ARG_PROGRAM)
    string(REGEX REPLACE "[.].*" "" ARG_PROGRAM ${name})
  endif()
  get_property(programs GLOBAL PROPERTY DS_TEST_PROGRAMS)
  if(NOT ARG_PROGRAM IN_LIST programs)
    message(FATAL_ERROR "${name}: tests/CMakeLists.txt has no program ${ARG_PROGRAM}")
  endif()
  set(target test_${ARG_PROGRAM})
  if(NOT TARGET ${target})
    return()
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(sources)
  foreach(source ${ARG_SOURCES})
    cmake_path(NORMAL_PATH source)  # helpers stand in several entries
    list(APPEND sources ${source})
  endforeach()
  ds_test_patterns(filter ${name} ${ARG_PROGRAM} "${sources}" "*")
  get_target_property(others ${target} SOURCES)
  list(REMOVE_ITEM sources ${others})
  target_sources(${target} PRIVATE ${sources})
  target_link_libraries(${target} PRIVATE ${ARG_LINKS})
  if(ARG_NIGHTLY)
    ds_test_patterns(nightly ${name} ${ARG_PROGRAM} "${ARG_SOURCES}" "${ARG_NIGHTLY}")
    string(APPEND filter "-${nightly}")
    add_test(NAME ${name}.nightly COMMAND ${target} "--gtest_filter=${nightly}" CONFIGURATIONS nightly)
    set_tests_properties(${name}.nightly PROPERTIES TIMEOUT 14400 LABELS nightly
        ENVIRONMENT "OMP_NUM_THREADS=1;${ARG_ENV}")
  endif()
  add_test(NAME ${name} COMMAND ${target} "--gtest_filter=${filter}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)  # only against hanging: a busy machine takes ten times as long as a quiet one
  endif()
  # One thread per test process keeps reductions in one order and two tests from fighting for cores.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT "OMP_NUM_THREADS=1;${ARG_ENV}")
  get_target_property(quick ${target} LABELS)
  if(quick)
    list(APPEND ARG_LABELS ${quick})
  endif()
  if(ARG_SERIAL)
    list(APPEND ARG_LABELS serial)
  endif()
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
  if(ARG_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
