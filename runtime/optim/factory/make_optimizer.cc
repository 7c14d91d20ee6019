#include "runtime/optim/factory/make_optimizer.h"

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

using Made = std::unique_ptr<Optimizer>;

Made Make(const config::AdamConfig& config, double weight_decay) {
  return std::make_unique<Adam>(config, weight_decay);
}
Made Make(const config::SgdConfig& config, double weight_decay) {
  return std::make_unique<Sgd>(config, weight_decay);
}
Made Make(const config::AdagradConfig& config, double weight_decay) {
  return std::make_unique<Adagrad>(config, weight_decay);
}
Made Make(const config::LionConfig& config, double weight_decay) {
  return std::make_unique<Lion>(config, weight_decay);
}
Made Make(const config::LambConfig& config, double weight_decay) {
  return std::make_unique<Lamb>(config, weight_decay);
}
Made Make(const config::MuonConfig& config, double weight_decay) {
  return std::make_unique<Muon>(config, weight_decay);
}
Made Make(const config::OneBitAdamConfig& config, double weight_decay) {
  return std::make_unique<OneBitAdam>(config, weight_decay);
}
Made Make(const config::OneBitLambConfig& config, double weight_decay) {
  return std::make_unique<OneBitLamb>(config, weight_decay);
}
Made Make(const config::ZeroOneAdamConfig& config, double weight_decay) {
  return std::make_unique<ZeroOneAdam>(config, weight_decay);
}

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config) {
  return std::visit([&](const auto& each) { return Make(each, config.weight_decay); },
                    config.algorithm);
}

}  // namespace ds::optim
