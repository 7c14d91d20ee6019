# Warnings, sanitizers, compiler cache and a fast linker: how everything here is compiled.

# For the host compiler only: nvcc takes other options.
set(ds_host $<COMPILE_LANGUAGE:C,CXX>)
add_compile_options("$<${ds_host}:-Wall;-Wextra;-Wno-missing-field-initializers;-fno-omit-frame-pointer>")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

if(DS_SANITIZE)
  # UBSan's checks keep -O2 busy for nearly twice as long as -O1.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1 -DNDEBUG")
  add_compile_options("$<${ds_host}:-fsanitize=${DS_SANITIZE};-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${DS_SANITIZE})
endif()

find_program(DS_CCACHE ccache)
if(DS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for before it caches users of a precompiled header. With paths
  # relative to the build folder what one checkout compiled serves the others.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${DS_CCACHE})
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

# mold before lld before the default: linking dominates the rebuild after a one-line change.
find_program(DS_MOLD mold)
find_program(DS_LLD ld.lld)
if(DS_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(DS_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# For programs that start often, of which page faults are a third of the time until main.
function(ds_link_for_quick_start target)
  # Keeps the constructors of 400 files side by side, apart from what hardly ever runs: a third of
  # the faults. mold and gold do not.
  if(DS_LLD)
    target_link_options(${target} PRIVATE -fuse-ld=lld -Wl,-z,keep-text-section-prefix)
  endif()
  # A linker writes through a mapping, which puts the file into the page cache page by page; so does
  # cp with copy_file_range. What one write has written lies there in large folios (ext4, xfs), which
  # are mapped and unmapped in one piece: a seventh of the time of a warm start.
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND dd if=$<TARGET_FILE:${target}> of=$<TARGET_FILE:${target}>.new bs=64M status=none
    COMMAND chmod a+x $<TARGET_FILE:${target}>.new
    COMMAND mv -f $<TARGET_FILE:${target}>.new $<TARGET_FILE:${target}>)
endfunction()
