#pragma once

// The elementwise optimizers: formula, op, state per parameter, and coefficients from a config and
// an update's rates. In the formulas g is the scaled gradient; t counts updates from 1.

#include <array>
#include <string_view>
#include <variant>

#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/direction_ops.h"
#include "runtime/optim/kernels/element.h"

namespace ds::optim {

struct SliceRates;

// Adam and AdamW, as PyTorch's fused AdamW computes them:
//   AdamW: p -= lr * weight_decay * p        Adam: g += weight_decay * p
//   m = m + (1 - beta1) (g - m)              v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// Without bias_correction both corrections are 1. Adam's state is AdamW's.
struct AdamCoefficients {
  float gradient_scale;
  float decay_factor;  // AdamW: factor of the parameter
  float l2;            // Adam: factor of the parameter that is added to the gradient
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;
  float inverse_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps;
};
struct AdamOp {
  static constexpr char kName[] = "Adam";
  static constexpr std::array kStates = kMoments;
  static constexpr Streams kStreams{.states = kStates.size()};
  AdamCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale + e.parameter * c.l2;
    const float first = e.state[0] + (gradient - e.state[0]) * c.one_minus_beta1;
    const float second = e.state[1] * c.beta2 + gradient * gradient * c.one_minus_beta2;
    e.state[0] = first;
    e.state[1] = second;
    e.parameter = e.parameter * c.decay_factor -
                  c.step_size * first / (std::sqrt(second) * c.inverse_correction2 + c.eps);
  }
};

// SGD as torch.optim.SGD computes it:
//   g += weight_decay * p
//   m = momentum * m + (1 - dampening) g, in the first update m = g
//   p -= lr * (g + momentum * m) with nesterov, else lr * m; without momentum lr * g
struct SgdCoefficients {
  float gradient_scale;
  float l2;
  float momentum;
  float gradient_share;  // factor of the gradient in the momentum: 1 - dampening
  float direct_share;    // factor of the gradient in the update
  float momentum_share;  // factor of the momentum in the update
  float lr;
};
struct SgdOp {
  static constexpr char kName[] = "SGD";
  static constexpr std::array<std::string_view, 0> kStates{};
  static constexpr Streams kStreams{};
  SgdCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    e.parameter -= c.lr * (e.gradient * c.gradient_scale + e.parameter * c.l2);
  }
};
struct SgdMomentumOp {
  static constexpr char kName[] = "SGD with momentum";
  static constexpr std::array<std::string_view, 1> kStates{"momentum_buffer"};
  static constexpr Streams kStreams{.states = kStates.size()};
  SgdCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale + e.parameter * c.l2;
    const float momentum = e.state[0] * c.momentum + gradient * c.gradient_share;
    e.state[0] = momentum;
    e.parameter -= c.lr * (gradient * c.direct_share + momentum * c.momentum_share);
  }
};

// Adagrad as torch.optim.Adagrad computes it:
//   g += weight_decay * p                    s += g^2
//   p -= lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
struct AdagradCoefficients {
  float gradient_scale;
  float l2;
  float lr;
  float eps;
};
struct AdagradOp {
  static constexpr char kName[] = "Adagrad";
  static constexpr std::array<std::string_view, 1> kStates{"sum"};
  static constexpr Streams kStreams{.states = kStates.size()};
  AdagradCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale + e.parameter * c.l2;
    const float total = e.state[0] + gradient * gradient;
    e.state[0] = total;
    e.parameter -= c.lr * gradient / (std::sqrt(total) + c.eps);
  }
};

// Lion:
//   p -= lr * weight_decay * p + lr * sign(beta1 m + (1 - beta1) g)
//   m = beta2 m + (1 - beta2) g
// The sign of 0 is 0, as in the paper. DeepSpeed's kernels move such elements too: by lr towards
// the sign bit on the CPU, always upwards on CUDA.
struct LionCoefficients {
  float gradient_scale;
  float decay_factor;
  float one_minus_beta1;
  float one_minus_beta2;
  float lr;
};
struct LionOp {
  static constexpr char kName[] = "Lion";
  static constexpr std::array<std::string_view, 1> kStates{"exp_avg"};
  static constexpr Streams kStreams{.states = kStates.size()};
  LionCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale;
    const float mixed = e.state[0] + (gradient - e.state[0]) * c.one_minus_beta1;
    const float step = mixed > 0.0F ? c.lr : mixed < 0.0F ? -c.lr : 0.0F;
    e.state[0] += (gradient - e.state[0]) * c.one_minus_beta2;
    e.parameter = e.parameter * c.decay_factor - step;
  }
};

// All ops.
using FlatOp = std::variant<AdamOp, SgdOp, SgdMomentumOp, AdagradOp, LionOp, MomentsOp, StepAlongOp,
                            DirectionOp, MuonMomentumOp, DecayAndStepOp>;

FlatOp MakeOp(const config::AdamConfig& config, const SliceRates& rates);
FlatOp MakeOp(const config::SgdConfig& config, const SliceRates& rates);
FlatOp MakeOp(const config::AdagradConfig& config, const SliceRates& rates);
FlatOp MakeOp(const config::LionConfig& config, const SliceRates& rates);

}  // namespace ds::optim
