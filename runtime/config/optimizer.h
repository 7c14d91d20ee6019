#pragma once

// OptimizerConfig holds the settings of the optimizer. There is one struct per algorithm, with
// fields named after optimizer.params. optimizer.cc lists the parameters that fill each struct; the
// headers of runtime/optim hold the formulas. The initializers are the defaults of optimizer.params
// (a test keeps them equal).

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
  // AdamW updates parameters that are not matrices, at a learning rate of its own.
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

// The values that an element's update depends on, in addition to the element's own.
enum class Reach {
  kElement,  // none: a buffer may be split anywhere
  kRange,    // its training range, which is a single part
  kModel,    // all parts, which are resident together
};
// Returns the widest reach of any parameter's update.
Reach ReachOf(const OptimizerAlgorithm& algorithm);

// The optimizer of a config, with the settings that all algorithms share.
struct OptimizerConfig {
  double lr = 1e-3;
  double weight_decay = 0.0;
  OptimizerAlgorithm algorithm;
  std::string base_shapes;            // MuAdam, MuAdamW, MuSGD: a .bsh file; empty for the others
  bool fp32_optimizer_states = true;  // false: in the dtype of the master weights
  bool blockwise_states = false;      // one byte per value, in blocks (Adam8bit, AdamW8bit)
};

// Returns the number of values that the optimizer keeps per parameter, for example two for Adam.
// For matrices that Muon updates, it keeps one less.
int CountOptimizerStates(const OptimizerConfig& optimizer);

class Values;

// A parameter that an optimizer accepts, and its default.
struct OptimizerParam {
  Key key;
  std::string_view otherwise = {};  // JSON; "" for the default of the registry
  bool is_fixed = false;            // always `otherwise`: not a setting of the optimizer
};

struct OptimizerType {
  std::string_view name;                   // the optimizer.type
  std::span<const OptimizerParam> params;  // in addition to lr and weight_decay
  // Builds the algorithm's settings. Requires values without errors.
  OptimizerAlgorithm (*fill)(const Values& values);
  bool is_elementwise = false;        // Reach::kElement, and no state in blocks
  bool takes_narrow_masters = false;  // 16-bit master weights are implemented for it
  bool is_blockwise = false;          // OptimizerConfig::blockwise_states
};
std::span<const OptimizerType> OptimizerTypes();

}  // namespace ds::config
