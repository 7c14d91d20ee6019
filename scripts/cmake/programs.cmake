# `ninja programs`: the programs and all that `cmake --install` installs, without tests, fuzzers and benchmarks.
get_property(libraries GLOBAL PROPERTY DS_EXPORTED)
set(programs dsrun dsrund dsrank custom_model cifar10_experts ds_arrow_plugin ds_demo_corpus ds_pages ${libraries})
# Compiling the kernels takes minutes: with DS_CUDA=AUTO only where something can run them.
if(DS_CUDA STREQUAL "ON" OR EXISTS /proc/driver/nvidia/version)
  list(APPEND programs ds_cuda_plugin)
endif()
add_custom_target(programs)
foreach(program ${programs})
  if(TARGET ${program})
    add_dependencies(programs ${program})
  endif()
endforeach()
