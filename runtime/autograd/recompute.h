#pragma once

// Recompute runs a part of the forward pass that keeps only its inputs and is computed again in the
// backward pass (activation checkpointing; Chen et al. 2016, "Training Deep Nets with Sublinear
// Memory Cost").
//
// The second run computes the same bits as the first. It has the same inputs, the same autocast,
// and the same state of LibTorch's generators. Random numbers that are functions of their position
// (models/kernels/dropout.h) are the same anyway. The part must be a function of its inputs, of
// parameters, and of these generators. Its captures must outlive the graph.
//
// Errors: c10::Error if an input was changed in place, by the part or after it, if the two runs
// return different numbers of tensors, or if the graph has been released. Threads: the backward
// pass runs the part on the autograd engine's thread of the device; on the CPU, on the calling
// thread.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <vector>

#include "runtime/autograd/saved_buffer.h"
#include "runtime/base/clock.h"
#include "runtime/comm/communicator.h"

namespace ds::activation {

using Tensors = std::vector<at::Tensor>;
// Undefined tensors are allowed as inputs and results and stay undefined.
using RecomputedForward = std::function<Tensors(Tensors inputs)>;

// RunTimes accumulates the times of a part's runs.
struct RunTimes {
  std::chrono::nanoseconds first{0}, again{0};
};

struct RecomputeOptions {
  bool trains = false;        // the part itself reads parameters that need gradients
  bool keep_on_host = false;  // inputs on a GPU are kept in pinned host memory
  // If set: ranks with equal inputs. Each rank keeps its partition; inputs that cannot be split
  // into equal parts stay complete on each rank. The second run is then collective. Must outlive
  // the graph.
  comm::Communicator* split_among = nullptr;
  // If set: holds the inputs or their partitions. Used during this call only.
  SavedBuffer* buffer = nullptr;
  bool synchronize = false;  // waits for the device before and after each run
  // If set: receives the time of each run on this thread; with `synchronize`, on the device. Must
  // outlive the graph, like the clock.
  RunTimes* times = nullptr;
  const Clock* clock = &Clock::System();
};

// Runs the part and returns its results. Gradients of real and complex results flow through it to
// inputs and parameters that need them. Only runs the part if no gradient is recorded or needed.
Tensors Recompute(RecomputedForward part, Tensors inputs, const RecomputeOptions& options = {});

}  // namespace ds::activation
