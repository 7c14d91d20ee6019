#include "tests/unit/optim/emulated_launch.h"

#include "runtime/optim/kernels/flat_loop.h"

namespace ds::optim {

void EmulatedUpdate(const FlatOp& op, const FlatViews& views) {
  std::visit(
      [&]<typename Op>(const Op& each) {
        const FlatPlan plan = PlanOf<Op>(views);
        // Last thread first: none may wait for an earlier one.
        for (std::int64_t thread = kEmulatedThreads - 1; thread >= 0; --thread) {
          UpdateStrided(each, views, plan, thread, kEmulatedThreads);
        }
      },
      op);
}

void OneByOneUpdate(const FlatOp& op, const FlatViews& views) {
  std::visit([&](const auto& each) { UpdateStrided(each, views, FlatPlan{}, 0, 1); }, op);
}

}  // namespace ds::optim
