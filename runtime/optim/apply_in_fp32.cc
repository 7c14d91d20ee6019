#include "runtime/optim/apply_in_fp32.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "runtime/optim/kernels/kernels.h"

namespace ds::optim {
namespace {

// Pieces begin where blocks of the kernels would. Parameter and two moments of one fit the second
// level of a core's cache.
constexpr std::int64_t kPiece = 64 * FlatBlock::kMaxCount;

bool IsWide(const at::Tensor& view) { return view.scalar_type() == at::kFloat; }

// An fp32 view for what is kept narrow: its room, and what it stands for.
class Widened {
 public:
  Widened(const at::Tensor& kept, std::int64_t piece) : kept_(kept) {
    if (!IsWide(kept)) room_ = at::empty({piece}, kept.options().dtype(at::kFloat));
  }

  at::Tensor Read(std::int64_t start, std::int64_t count) const {
    const at::Tensor from = kept_.narrow(0, start, count);
    return room_.defined() ? room_.narrow(0, 0, count).copy_(from) : from;
  }
  void Write(std::int64_t start, std::int64_t count) const {
    if (room_.defined()) kept_.narrow(0, start, count).copy_(room_.narrow(0, 0, count));
  }

 private:
  at::Tensor kept_, room_;
};

// Narrow masters have gradients in their dtype: rounded, unscaled and clipped in it.
at::Tensor NarrowGradient(const Part& part, double scale) {
  return part.gradient.to(part.parameter.scalar_type()).mul(scale);
}

}  // namespace

void ApplyInFp32(Optimizer& optimizer, const Update& update, const Part& part) {
  const bool wide =
      IsWide(part.parameter) && std::all_of(part.state.begin(), part.state.end(), IsWide);
  // What runs off the CPU widens in registers.
  if (wide || optimizer.Launch(part) != nullptr) return optimizer.Apply(update, part);
  const std::int64_t numel = part.parameter.numel();
  const std::int64_t piece = std::min(kPiece, numel);
  const bool narrow_masters = !IsWide(part.parameter);
  Update piecewise = update;
  if (narrow_masters) piecewise.gradient_scale = 1.0;
  const Widened parameter(part.parameter, piece);
  std::vector<Widened> states;
  for (const at::Tensor& state : part.state) states.emplace_back(state, piece);
  for (std::int64_t start = 0; start < numel; start += piece) {
    const std::int64_t count = std::min(piece, numel - start);
    Part cut = Cut(part, start, count);
    if (narrow_masters) cut.gradient = NarrowGradient(cut, update.gradient_scale);
    cut.parameter = parameter.Read(start, count);
    for (std::size_t i = 0; i < states.size(); ++i) cut.state[i] = states[i].Read(start, count);
    optimizer.Apply(piecewise, cut);
    parameter.Write(start, count);
    for (const Widened& state : states) state.Write(start, count);
  }
}

}  // namespace ds::optim
