# The precompiled header that all users of LibTorch share.
#
# <torch/nn/module.h> and friends cost 10 s a file; from the precompiled header it is 2 s.
file(WRITE ${PROJECT_BINARY_DIR}/torch_pch/torch_pch.cc "// Owns the precompiled header of LibTorch's users.\n")
add_library(ds_torch_pch OBJECT ${PROJECT_BINARY_DIR}/torch_pch/torch_pch.cc)
target_link_libraries(ds_torch_pch PRIVATE ds_libtorch)
target_precompile_headers(ds_torch_pch PRIVATE
    <ATen/ATen.h> <torch/nn/module.h> <torch/csrc/autograd/custom_function.h>
    <torch/csrc/distributed/c10d/Backend.hpp> <torch/csrc/distributed/c10d/TCPStore.hpp>)

function(ds_use_torch_pch target)
  target_precompile_headers(${target} REUSE_FROM ds_torch_pch)
  # The header is compiled for libraries; an executable's -fpie would make the compiler ignore it.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
