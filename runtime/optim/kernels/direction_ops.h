#pragma once

// MomentsOp, StepAlongOp and the other ops here serve optimizers that step along a direction
// (direction.h, ../muon.h).

#include <array>
#include <string_view>

#include "runtime/optim/kernels/element.h"

namespace ds::optim {

// Adam's state names, which these optimizers use, too.
inline constexpr std::array<std::string_view, 2> kMoments{"exp_avg", "exp_avg_sq"};

struct DirectionCoefficients {
  float gradient_scale;
  float weight_decay;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float eps_inside;   // eps if it is added under the root, else 0
  float eps_outside;  // eps if it is added to the root, else 0
};
// Updates the moments from the gradient.
struct MomentsOp {
  static constexpr char kName[] = "moments";
  static constexpr std::array kStates = kMoments;
  static constexpr Streams kStreams{
      .reads_parameter = false, .writes_parameter = false, .states = kStates.size()};
  DirectionCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale;
    e.state[0] += (gradient - e.state[0]) * c.one_minus_beta1;
    e.state[1] = e.state[1] * c.beta2 + gradient * gradient * c.one_minus_beta2;
  }
};
// parameter += factor * u, where u is the parameter's change at rate 1.
struct StepAlongOp {
  static constexpr char kName[] = "step along a direction";
  static constexpr std::array kStates = kMoments;
  static constexpr Streams kStreams{
      .reads_gradient = false, .states = kStates.size(), .writes_states = false};
  DirectionCoefficients c;
  float factor;

  DS_HOST_DEVICE static float Direction(const DirectionCoefficients& c, const Element& e,
                                        float parameter) {
    const float root = std::sqrt(e.state[1] + c.eps_inside) + c.eps_outside;
    return e.state[0] / root + c.weight_decay * parameter;
  }
  DS_HOST_DEVICE void operator()(Element& e) const {
    e.parameter += factor * Direction(c, e, e.parameter);
  }
};
// Writes u to the parameter's stream; reads the parameter from the gradient's stream.
struct DirectionOp {
  static constexpr char kName[] = "direction";
  static constexpr std::array kStates = kMoments;
  static constexpr Streams kStreams{
      .reads_parameter = false, .states = kStates.size(), .writes_states = false};
  DirectionCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    e.parameter = StepAlongOp::Direction(c, e, e.gradient);
  }
};

struct MuonCoefficients {
  float gradient_scale;
  float one_minus_momentum;
};
// Writes the result, which is then orthogonalised, to the parameter's stream.
struct MuonMomentumOp {
  static constexpr char kName[] = "Muon momentum";
  static constexpr std::array<std::string_view, 1> kStates{"momentum_buffer"};
  static constexpr Streams kStreams{.reads_parameter = false, .states = kStates.size()};
  MuonCoefficients c;

  DS_HOST_DEVICE void operator()(Element& e) const {
    const float gradient = e.gradient * c.gradient_scale;
    const float momentum = e.state[0] + (gradient - e.state[0]) * c.one_minus_momentum;
    e.state[0] = momentum;
    e.parameter = momentum + (gradient - momentum) * c.one_minus_momentum;
  }
};
// parameter = decay * parameter - lr * gradient.
struct DecayAndStepOp {
  static constexpr char kName[] = "decay and step";
  static constexpr std::array<std::string_view, 0> kStates{};
  static constexpr Streams kStreams{};
  float decay;
  float lr;

  DS_HOST_DEVICE void operator()(Element& e) const {
    e.parameter = e.parameter * decay - lr * e.gradient;
  }
};

}  // namespace ds::optim
