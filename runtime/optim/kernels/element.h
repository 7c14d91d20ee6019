#pragma once

// Element and Streams are the interface for an optimizer's arithmetic. It is written once, for the
// CPU's kernels (flat_block.cc) and for CUDA (flat_loop.h).
//
// An op has coefficients, rounded to fp32 once, and a function of one Element. kStreams lists the
// values that it reads and writes, kStates names the state per element, kName is its name in errors
// and checkpoints. Free of LibTorch.

#include <cmath>

#ifdef __CUDACC__
#define DS_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define DS_HOST_DEVICE [[gnu::always_inline]] inline
#endif

namespace ds::optim {

struct Element {
  float parameter;
  float gradient;
  float state[2];  // the first of Optimizer::state_names
};

struct Streams {
  bool reads_parameter = true;
  bool writes_parameter = true;
  bool reads_gradient = true;
  int states = 0;
  bool writes_states = true;
};

}  // namespace ds::optim
