#pragma once

// Recompute: a part of the forward pass that keeps nothing but its inputs, and is computed again
// when the backward pass comes to it (activation checkpointing; Chen et al. 2016, "Training Deep
// Nets with Sublinear Memory Cost").
//
// The second run computes what the first did, bit for bit: it is given the same inputs, the same
// autocast, and the generators of LibTorch as they stood before the first run. Draws that are
// functions of their place (models/kernels/dropout.h) are the same anyway. The part must be such a
// function of its inputs, of parameters, and of these generators; what it captures must live as
// long as the graph.
//
// Errors: c10::Error when an input was changed in place, by the part or behind it, when the two
// give another number of tensors, and when the graph has been released. Threads: the backward pass
// runs the part on the autograd engine's thread of the device, on the CPU that which called it.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <vector>

#include "runtime/autograd/kept_buffer.h"
#include "runtime/base/clock.h"
#include "runtime/comm/communicator.h"

namespace ds::activation {

using Tensors = std::vector<at::Tensor>;
// Undefined tensors are allowed on both sides and stay so.
using ForwardPart = std::function<Tensors(Tensors inputs)>;

// RunTimes adds up what the runs of a part take.
struct RunTimes {
  std::chrono::nanoseconds first{0}, again{0};
};

struct RecomputeOptions {
  bool trains = false;        // the part reads parameters, of itself, that need gradients
  bool keep_on_host = false;  // inputs wait in pinned host memory, where they are on a GPU
  // Present: ranks that are given the same inputs, of which each keeps its part. What cannot be cut
  // into equal parts each keeps. The second run is collective, and these outlive the graph.
  comm::Communicator* cut_among = nullptr;
  // Present: their parts lie in it. It is used in this call only.
  KeptBuffer* buffer = nullptr;
  bool synchronize = false;  // waits for the device before and behind each run
  // Present: gets what each run takes of this thread; with `synchronize`, of the device. Lives as
  // long as the graph, as the clock does.
  RunTimes* times = nullptr;
  const Clock* clock = &Clock::System();
};

// Runs the part and returns what it returns. Gradients of its real and complex results flow through
// it to the inputs, and to parameters, that need them. Where no gradient is recorded, or nothing
// needs one, the part just runs.
Tensors Recompute(ForwardPart part, Tensors inputs, const RecomputeOptions& options = {});

}  // namespace ds::activation
