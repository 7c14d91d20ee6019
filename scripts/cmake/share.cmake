# share/dsrun beside bin/: what the programs read at run time. The same layout when built and installed.
set(DS_SHARE ${PROJECT_BINARY_DIR}/share/dsrun)
set(DS_PAGES ${DS_SHARE}/pages)
file(MAKE_DIRECTORY ${DS_SHARE})
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/configs ${DS_SHARE}/configs SYMBOLIC)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/cli/manual ${DS_SHARE}/manual SYMBOLIC)

# Made once per build folder: a corpus that changed with every edit would make two runs of the demo
# incomparable.
add_custom_command(OUTPUT ${DS_SHARE}/demo_corpus.txt
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${DS_SHARE}/demo_corpus.txt
          -P ${PROJECT_SOURCE_DIR}/scripts/cmake/demo_corpus.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/scripts/cmake/demo_corpus.cmake VERBATIM)
add_custom_target(ds_demo_corpus ALL DEPENDS ${DS_SHARE}/demo_corpus.txt)
