# The component Python: what the wheel `dsrun` has, in the folders platlib, scripts and data of a wheel. `pip wheel .` and
# scripts/make_wheel.py install it, `cmake --install` without a component does not. The programs are scripts of the
# wheel, so they lie in the environment's bin, and start without an interpreter.
if(NOT TARGET dsrun_python)
  return()
endif()
if(DEFINED SKBUILD)  # set by scikit-build-core
  if(NOT SKBUILD_PROJECT_VERSION_FULL MATCHES "[+]pt${ds_torch_MAJOR}${ds_torch_MINOR}$")
    message(FATAL_ERROR "pyproject.toml makes dsrun ${SKBUILD_PROJECT_VERSION_FULL}, and LibTorch is ${DS_TORCH_VERSION} "
        "(${DS_TORCH_ROOT}). Give LIBTORCH=DIR with the release that the version names, or change both there.")
  endif()
  set(ds_wheel_platlib ${SKBUILD_PLATLIB_DIR})
  set(ds_wheel_scripts ${SKBUILD_SCRIPTS_DIR})
  set(ds_wheel_data ${SKBUILD_DATA_DIR})
else()
  set(ds_wheel_platlib platlib)
  set(ds_wheel_scripts scripts)
  set(ds_wheel_data data)
endif()

# Where dsrank and the plugins find the packages of the environment, from its bin or lib. Each is looked at after the
# places of ds_set_rpath().
find_package(Python3 3.10 COMPONENTS Interpreter Development.Module QUIET)
set(ds_wheel_python python${Python3_VERSION_MAJOR}.${Python3_VERSION_MINOR})
foreach(ds_wheel_row "dsrank|torch/lib" "ds_cuda_plugin|torch/lib" "ds_arrow_plugin|pyarrow")
  string(REPLACE "|" ";" ds_wheel_row ${ds_wheel_row})
  list(GET ds_wheel_row 0 ds_wheel_target)
  list(GET ds_wheel_row 1 ds_wheel_library)
  if(TARGET ${ds_wheel_target})
    set_property(TARGET ${ds_wheel_target} APPEND PROPERTY INSTALL_RPATH
        $ORIGIN/../lib/${ds_wheel_python}/site-packages/${ds_wheel_library}
        $ORIGIN/../lib/${ds_wheel_python}/dist-packages/${ds_wheel_library}  # Debian's Python
        $ORIGIN/../${ds_wheel_library})  # pip install --target
  endif()
endforeach()

ds_install_programs(Python ${ds_wheel_scripts} ${ds_wheel_data}/lib ${ds_wheel_data}/share ${ds_wheel_data}/share/man
    EXCLUDE_FROM_ALL)
install(TARGETS dsrun_python LIBRARY DESTINATION ${ds_wheel_platlib}/dsrun COMPONENT Python EXCLUDE_FROM_ALL)
# From the sources: a build folder may have modules that are no longer there.
install(DIRECTORY runtime/python/dsrun DESTINATION ${ds_wheel_platlib} COMPONENT Python EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/python/dsrun/_torch_version.py
        DESTINATION ${ds_wheel_platlib}/dsrun COMPONENT Python EXCLUDE_FROM_ALL)
# The places that this build has found are no places of another machine.
string(CONFIGURE [[
foreach(place "@ds_wheel_scripts@/dsrank" "@ds_wheel_data@/lib/*.so")
  cmake_path(ABSOLUTE_PATH place BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
  file(GLOB files "$ENV{DESTDIR}${place}")
  foreach(file ${files})
    file(READ_ELF ${file} RUNPATH places)
    set(kept ${places})
    list(FILTER kept INCLUDE REGEX "^[$]ORIGIN/")
    list(JOIN places ":" places)
    list(JOIN kept ":" kept)
    file(RPATH_CHANGE FILE ${file} OLD_RPATH ${places} NEW_RPATH ${kept})
  endforeach()
endforeach()
]] ds_wheel_code @ONLY)
install(CODE "${ds_wheel_code}" COMPONENT Python EXCLUDE_FROM_ALL)
