#include "runtime/optim/factory/make_optimizer.h"

#include <type_traits>
#include <variant>

#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/lamb.h"
#include "runtime/optim/lion.h"
#include "runtime/optim/muon.h"
#include "runtime/optim/one_bit/one_bit_adam.h"
#include "runtime/optim/one_bit/one_bit_lamb.h"
#include "runtime/optim/one_bit/zero_one_adam.h"
#include "runtime/optim/sgd.h"

namespace ds::optim {
namespace {

template <typename... Kinds>
struct Optimizers {
  template <typename Config>
  static std::unique_ptr<Optimizer> Make(const Config& config, double weight_decay) {
    static_assert((std::is_constructible_v<Kinds, const Config&, double> + ...) == 1,
                  "every config is that of one optimizer");
    std::unique_ptr<Optimizer> made;
    const auto try_kind = [&]<typename Kind>(std::type_identity<Kind>) {
      if constexpr (std::is_constructible_v<Kind, const Config&, double>) {
        made = std::make_unique<Kind>(config, weight_decay);
      }
    };
    (try_kind(std::type_identity<Kinds>()), ...);
    return made;
  }
};

// Each takes its alternative of config::OptimizerAlgorithm.
using All = Optimizers<Adagrad, Adam, Lamb, Lion, Muon, OneBitAdam, OneBitLamb, Sgd, ZeroOneAdam>;

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config) {
  return std::visit([&](const auto& each) { return All::Make(each, config.weight_decay); },
                    config.algorithm);
}

}  // namespace ds::optim
