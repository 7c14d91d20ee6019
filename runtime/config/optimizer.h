#pragma once

// OptimizerConfig: how parameters follow from gradients. One struct per algorithm, fields named
// after optimizer.params; optimizer.cc says which parameters fill it, the headers of runtime/optim
// hold the formulas. The initializers are the defaults of optimizer.params (a test keeps them so).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/config/keys/key.h"

namespace ds::config {

// Types Adam, AdamW, MuAdam, MuAdamW, Adam8bit and AdamW8bit.
struct AdamConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  // Decoupled weight decay (AdamW's rule). Type AdamW always has it, Adam unless switched off.
  bool adam_w_mode = true;
  bool bias_correction = true;
  friend bool operator==(const AdamConfig&, const AdamConfig&) = default;
};

// Types SGD and MuSGD.
struct SgdConfig {
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  friend bool operator==(const SgdConfig&, const SgdConfig&) = default;
};

struct AdagradConfig {
  double eps = 1e-10;
  double lr_decay = 0.0;
  friend bool operator==(const AdagradConfig&, const AdagradConfig&) = default;
};

struct LionConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  friend bool operator==(const LionConfig&, const LionConfig&) = default;
};

struct LambConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool bias_correction = true;
  bool eps_inside_sqrt = false;
  double min_coeff = 0.01;  // the trust ratio's limits
  double max_coeff = 10.0;
  friend bool operator==(const LambConfig&, const LambConfig&) = default;
};

enum class NewtonSchulz { kGram, kStandard };

struct MuonConfig {
  double momentum = 0.95;
  NewtonSchulz newton_schulz = NewtonSchulz::kGram;
  // AdamW updates what is no matrix, at a rate of its own.
  double adam_lr = 3e-4;
  AdamConfig adam = {.beta2 = 0.95, .eps = 1e-10};
  friend bool operator==(const MuonConfig&, const MuonConfig&) = default;
};

struct OneBitAdamConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::int64_t freeze_step = 100000;
  friend bool operator==(const OneBitAdamConfig&, const OneBitAdamConfig&) = default;
};

struct OneBitLambConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double min_coeff = 0.01;  // the trust ratio's limits
  double max_coeff = 10.0;
  std::int64_t freeze_step = 100000;
  double coeff_beta = 0.9;
  double factor_max = 4.0;
  double factor_min = 0.5;
  double factor_threshold = 0.1;
  friend bool operator==(const OneBitLambConfig&, const OneBitLambConfig&) = default;
};

struct ZeroOneAdamConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::int64_t var_freeze_step = 100000;
  std::int64_t var_update_scaler = 16;
  std::int64_t local_step_scaler = 32678;
  std::int64_t local_step_clipper = 16;
  friend bool operator==(const ZeroOneAdamConfig&, const ZeroOneAdamConfig&) = default;
};

using OptimizerAlgorithm =
    std::variant<AdamConfig, SgdConfig, AdagradConfig, LionConfig, LambConfig, MuonConfig,
                 OneBitAdamConfig, OneBitLambConfig, ZeroOneAdamConfig>;

// Beside an element's own values, its update follows from:
enum class Reach {
  kElement,  // nothing else: parts may be cut anywhere
  kRange,    // its training range, which is one part
  kModel,    // all parts, which are there together
};
// The farthest that the update of any parameter reaches.
Reach ReachOf(const OptimizerAlgorithm& algorithm);

// The optimizer of a config, and what every one has.
struct OptimizerConfig {
  double lr = 1e-3;
  double weight_decay = 0.0;
  OptimizerAlgorithm algorithm;
  std::string base_shapes;            // MuAdam, MuAdamW, MuSGD: a .bsh file; empty for the others
  bool fp32_optimizer_states = true;  // false: in the dtype of the master weights
  bool blockwise_states = false;      // a byte a value, in blocks (Adam8bit, AdamW8bit)
};

// Counts the values that the optimizer keeps for each parameter: Adam's two. Of those that Muon
// updates it has one less.
int CountOptimizerStates(const OptimizerConfig& optimizer);

class Values;

// A parameter that an optimizer takes, and what it is when not given.
struct OptimizerParam {
  Key key;
  std::string_view otherwise = {};  // JSON; "" for the default of the registry
  bool is_fixed = false;            // always `otherwise`: the optimizer does not take it
};

struct OptimizerType {
  std::string_view name;                   // the optimizer.type
  std::span<const OptimizerParam> params;  // beside lr and weight_decay, which all of them take
  // Requires values without errors.
  OptimizerAlgorithm (*fill)(const Values& values);
  bool is_elementwise = false;        // Reach::kElement, and no state in blocks
  bool takes_narrow_masters = false;  // 16-bit master weights are built for it
  bool is_blockwise = false;          // OptimizerConfig::blockwise_states
};
std::span<const OptimizerType> OptimizerTypes();

}  // namespace ds::config
