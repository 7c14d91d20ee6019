#pragma once

// Ops and views that the tests of flat updates share, those on a GPU included.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/optim/kernels/flat_ops.h"
#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::optim {

// One of each kind, with coefficients that leave nothing out.
std::vector<FlatOp> EveryOp();
std::string NameOf(const FlatOp& op);

struct FlatCase {
  std::int64_t count = 1000;
  std::int64_t offset = 0;      // where the views begin in their buffers
  bool offsets_differ = false;  // view v begins v elements later
  at::ScalarType parameter = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  at::ScalarType state = at::kFloat;
  at::ScalarType published = at::kBFloat16;

  std::string Name() const;
};
// Lists cases that differ in alignment, in length and in types.
std::vector<FlatCase> EveryCase();

// Random values in buffers that go on beyond the views on both sides. State is small and nowhere
// negative, as in the middle of a run.
struct FlatBuffers {
  std::vector<at::Tensor> full;  // parameter, gradient, two states, published
  OptimizerSlice slice;          // views of them
};
FlatBuffers MakeBuffers(const FlatCase& each);
// The same values in other memory.
FlatBuffers CopyTo(const FlatBuffers& from, const FlatCase& each, at::Device device);

// Runs the op over the part by `launch`, null for the CPU's kernels.
void UpdateBy(FlatUpdate launch, const FlatOp& op, OptimizerSlice slice);

// The largest difference of two elements, beside the largest element or 1.
double Deviation(const at::Tensor& ours, const at::Tensor& theirs);
// The difference that rounding explains: a few units in the last place of fp32, one of narrower
// types.
double Tolerance(at::ScalarType type);

}  // namespace ds::optim
