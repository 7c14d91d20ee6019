#include "runtime/optim/device_update.h"

namespace ds::optim {

at::Tensor ScaledGradient(double scale, const Part& part) {
  at::Tensor gradient = part.gradient.to(at::kFloat);
  if (scale != 1.0) gradient.mul_(scale);
  return gradient;
}

void Publish(const Part& part) {
  if (part.published.defined()) part.published.copy_(part.parameter);
}

}  // namespace ds::optim
