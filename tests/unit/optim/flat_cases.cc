#include "tests/unit/optim/flat_cases.h"

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>

#include "runtime/optim/kernels/flat_update.h"
#include "tests/unit/optim/optimizer_slices.h"

namespace ds::optim {
namespace {

constexpr std::int64_t kMargin = 8;

OptimizerSlice ViewsInto(const std::vector<at::Tensor>& full, const FlatCase& each) {
  std::vector<at::Tensor> views;
  std::int64_t start = each.offset;
  for (const at::Tensor& buffer : full) {
    views.push_back(buffer.narrow(0, kMargin + start, each.count));
    if (each.offsets_differ) ++start;
  }
  return {.parameter = views[0],
          .gradient = views[1],
          .state = {views[2], views[3]},
          .published = views[4]};
}

}  // namespace

std::vector<FlatOp> EveryOp() {
  const DirectionCoefficients direction{.gradient_scale = 0.5F,
                                        .weight_decay = 0.1F,
                                        .one_minus_beta1 = 0.1F,
                                        .beta2 = 0.95F,
                                        .one_minus_beta2 = 0.05F,
                                        .eps_inside = 1e-6F,
                                        .eps_outside = 1e-4F};
  const SgdCoefficients sgd{.gradient_scale = 0.5F,
                            .l2 = 0.01F,
                            .momentum = 0.9F,
                            .gradient_share = 0.8F,
                            .direct_share = 1.0F,
                            .momentum_share = 0.9F,
                            .lr = 0.01F};
  return {AdamOp{{.gradient_scale = 0.5F,
                  .decay_factor = 0.99F,
                  .l2 = 0.01F,
                  .one_minus_beta1 = 0.1F,
                  .beta2 = 0.95F,
                  .one_minus_beta2 = 0.05F,
                  .step_size = 0.013F,
                  .inverse_correction2 = 1.7F,
                  .eps = 1e-4F}},
          SgdOp{sgd},
          SgdMomentumOp{sgd},
          AdagradOp{{.gradient_scale = 0.5F, .l2 = 0.01F, .lr = 0.013F, .eps = 1e-4F}},
          LionOp{{.gradient_scale = 0.5F,
                  .decay_factor = 0.99F,
                  .one_minus_beta1 = 0.1F,
                  .one_minus_beta2 = 0.05F,
                  .lr = 0.013F}},
          MomentsOp{direction},
          StepAlongOp{direction, -0.03F},
          DirectionOp{direction},
          MuonMomentumOp{{.gradient_scale = 0.5F, .one_minus_momentum = 0.05F}},
          DecayAndStepOp{0.99F, 0.013F}};
}

std::string NameOf(const FlatOp& op) {
  return std::visit([](const auto& each) { return std::string(each.kName); }, op);
}

std::string FlatCase::Name() const {
  return fmt::format("{} elements from {}{}, parameter {}, gradient {}, state {}, published {}",
                     count, offset, offsets_differ ? " on" : "", c10::toString(parameter),
                     c10::toString(gradient), c10::toString(state), c10::toString(published));
}

std::vector<FlatCase> EveryCase() {
  std::vector<FlatCase> cases;
  for (const std::int64_t count : {0, 1, 3, 4, 7, 64, 1000, 5003}) {
    for (const std::int64_t offset : {0, 1, 2, 3}) {
      cases.push_back({.count = count, .offset = offset});
    }
    cases.push_back({.count = count, .offsets_differ = true});
  }
  for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
    cases.push_back({.offset = 1, .gradient = narrow, .published = narrow});
    cases.push_back({.gradient = narrow, .state = narrow, .published = narrow});
    cases.push_back({.offset = 2, .parameter = narrow, .gradient = narrow, .published = narrow});
    cases.push_back({.parameter = narrow, .gradient = at::kFloat, .state = narrow});
  }
  return cases;
}

FlatBuffers MakeBuffers(const FlatCase& each) {
  const std::int64_t size = each.count + 2 * kMargin + 8;
  FlatBuffers buffers;
  buffers.full = {at::randn({size}).to(each.parameter), at::randn({size}).to(each.gradient),
                  at::rand({size}).mul_(0.1).to(each.state),
                  at::rand({size}).mul_(0.1).to(each.state), at::randn({size}).to(each.published)};
  buffers.slice = ViewsInto(buffers.full, each);
  return buffers;
}

FlatBuffers CopyTo(const FlatBuffers& from, const FlatCase& each, at::Device device) {
  FlatBuffers copy;
  for (const at::Tensor& buffer : from.full) {
    copy.full.push_back(
        buffer.to(buffer.options().device(device), /*non_blocking=*/false, /*copy=*/true));
  }
  copy.slice = ViewsInto(copy.full, each);
  return copy;
}

void UpdateBy(FlatUpdate launch, const FlatOp& op, OptimizerSlice slice) {
  slice.launch = launch;
  UpdateSlice(op, slice);
}

double Deviation(const at::Tensor& ours, const at::Tensor& theirs) {
  if (theirs.numel() == 0) return 0.0;
  return Distance(ours, theirs) / std::max(1.0, theirs.to(at::kDouble).abs().max().item<double>());
}

double Tolerance(at::ScalarType type) {
  if (type == at::kFloat) return 2e-6;
  return type == at::kBFloat16 ? 1.0 / 128.0 : 1.0 / 1024.0;
}

}  // namespace ds::optim
