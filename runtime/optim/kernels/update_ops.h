#pragma once

// The updates of the elementwise optimizers; adam.h, sgd.h, adagrad.h and lion.h have the formulas.

#include "runtime/optim/kernels/element.h"

namespace ds::optim {

struct AdamCoefficients {
  float gradient_scale;
  float decay_factor;  // AdamW: what the parameter is multiplied by
  float l2;            // Adam: what of the parameter is added to the gradient
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;
  float inverse_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps;
};
// State: exp_avg, exp_avg_sq.
struct AdamOp {
  static constexpr char kName[] = "Adam";
  static constexpr Streams kStreams{.states = 2};
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

struct SgdCoefficients {
  float gradient_scale;
  float l2;
  float momentum;
  float gradient_share;  // what of the gradient enters the momentum: 1 - dampening
  float direct_share;    // what of the gradient enters the update beside the momentum
  float momentum_share;  // what of the momentum enters the update
  float lr;
};
struct SgdOp {
  static constexpr char kName[] = "SGD";
  static constexpr Streams kStreams{};
  SgdCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    e.parameter -= c.lr * (e.gradient * c.gradient_scale + e.parameter * c.l2);
  }
};
// State: momentum_buffer.
struct SgdMomentumOp {
  static constexpr char kName[] = "SGD with momentum";
  static constexpr Streams kStreams{.states = 1};
  SgdCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale + e.parameter * c.l2;
    const float momentum = e.state[0] * c.momentum + gradient * c.gradient_share;
    e.state[0] = momentum;
    e.parameter -= c.lr * (gradient * c.direct_share + momentum * c.momentum_share);
  }
};

struct AdagradCoefficients {
  float gradient_scale;
  float l2;
  float lr;
  float eps;
};
// State: sum.
struct AdagradOp {
  static constexpr char kName[] = "Adagrad";
  static constexpr Streams kStreams{.states = 1};
  AdagradCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale + e.parameter * c.l2;
    const float total = e.state[0] + gradient * gradient;
    e.state[0] = total;
    e.parameter -= c.lr * gradient / (std::sqrt(total) + c.eps);
  }
};

struct LionCoefficients {
  float gradient_scale;
  float decay_factor;
  float one_minus_beta1;
  float one_minus_beta2;
  float lr;
};
// State: exp_avg.
struct LionOp {
  static constexpr char kName[] = "Lion";
  static constexpr Streams kStreams{.states = 1};
  LionCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale;
    const float mixed = e.state[0] + (gradient - e.state[0]) * c.one_minus_beta1;
    const float step = mixed > 0.0F ? c.lr : mixed < 0.0F ? -c.lr : 0.0F;
    e.state[0] += (gradient - e.state[0]) * c.one_minus_beta2;
    e.parameter = e.parameter * c.decay_factor - step;
  }
};

}  // namespace ds::optim
