#pragma once

// FlatBlock is a block of flat views on the CPU, small enough for the first-level cache while a
// kernel runs over it. 16-bit views are upcast and rounded in the same pass over memory.

#include <c10/util/FunctionRef.h>

#include <array>
#include <cstdint>

#include "runtime/base/half_float.h"
#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

// Elements that are updated together, in fp32; the ranges do not overlap. Pointers to absent views
// are null.
struct FlatBlock {
  static constexpr std::int64_t kMaxCount = 1024;  // all its streams fit the first-level cache

  std::int64_t start = 0;  // in the views
  std::int64_t count = 0;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  std::array<float*, 2> state{};  // the first of Optimizer::state_names
};

// Calls `update` for every block, from several threads, and writes the results to 16-bit views.
// Blocks start at multiples of FlatBlock::kMaxCount for any number of threads.
void ForEachBlock(const FlatViews& views, c10::function_ref<void(const FlatBlock&)> update);

void UpdateBlock(const FlatOp& op, const FlatBlock& block);

// The CPU's FlatUpdate (flat_ops.h). All elements are updated when it returns.
void UpdateOnCpu(const FlatOp& op, const FlatViews& views);

// Convert `count` values with vector instructions; the ranges must not overlap.
void Widen(const BFloat16* narrow, std::int64_t count, float* wide);
void Widen(const Float16* narrow, std::int64_t count, float* wide);
void Round(const float* wide, std::int64_t count, BFloat16* narrow);
void Round(const float* wide, std::int64_t count, Float16* narrow);

}  // namespace ds::optim
