# Gathers the project's own text into one file, the corpus `dsrun train` uses when none is named.
# Called as: cmake -DROOT=<source dir> -DOUTPUT=<file> -P demo_corpus.cmake
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE texts RELATIVE ${ROOT}
     ${ROOT}/*.md ${ROOT}/cli/*.h ${ROOT}/cli/*.cc ${ROOT}/daemon/*.h ${ROOT}/daemon/*.cc
     ${ROOT}/runtime/*.h ${ROOT}/runtime/*.cc)
list(FILTER texts EXCLUDE REGEX "^(build[^/]*|\\.deps|runs)/")
list(SORT texts)
set(corpus "")
foreach(text ${texts})
  file(READ "${ROOT}/${text}" content)
  string(APPEND corpus "${content}")
endforeach()
file(WRITE ${OUTPUT} "${corpus}")
