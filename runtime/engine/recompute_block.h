#pragma once

// The tensors of a bundle that gradients flow through, and a block that keeps nothing but them.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/activation/recompute.h"
#include "runtime/models/block.h"

namespace ds::engine {

// Takes hidden, loss and extras, in the order of their names, out of the bundle, and puts them, or
// what has become of them, back: as many, in the same order.
std::vector<at::Tensor> TakeDifferentiable(Bundle* bundle);
void PutDifferentiable(std::vector<at::Tensor> tensors, Bundle* bundle);

// Tells whether a parameter of the block needs a gradient.
bool TrainsParameters(const Block& block);

// Runs the block and keeps what it was given, from which the backward pass computes it again
// (activation/recompute.h). The block's buffers, which a forward pass may change (the running mean
// of a batch normalisation), are then left as they were. The block outlives the graph.
Bundle RecomputeBlock(Block& block, Bundle bundle, activation::RecomputeOptions options);

}  // namespace ds::engine
