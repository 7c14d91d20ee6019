#pragma once

// SummingSink: collects a parameter's gradient, and counts how it came.

#include <ATen/ops/full.h>

#include <limits>
#include <memory>
#include <optional>

#include "runtime/autograd/put_gradient.h"

namespace ds::testing {

class SummingSink : public gradients::GradientSink {
 public:
  struct Sum {
    at::Tensor gradient;  // undefined before the first
    int puts = 0;
    int arrivals = 0;  // in the ordinary way
  };

  // Attaches a sink to the parameter while the result lives. It sums in the parameter's dtype or,
  // wide, in fp32.
  static std::shared_ptr<const Sum> Attach(const at::Tensor& parameter, bool is_wide = false) {
    struct Attached {
      Sum sum;
      std::optional<gradients::AttachedSink> sink;
    };
    auto attached = std::make_shared<Attached>();
    attached->sink.emplace(std::make_unique<SummingSink>(parameter, attached->sum, is_wide));
    return {attached, &attached->sum};
  }

  SummingSink(const at::Tensor& parameter, Sum& sum, bool is_wide)
      : GradientSink(parameter), sum_(sum), is_wide_(is_wide) {}

  void Take(const at::Tensor& gradient) override {
    ++sum_.arrivals;
    sum_.gradient = sum_.gradient.defined() ? sum_.gradient + gradient : gradient.clone();
  }

  bool Put(const gradients::WriteGradient& write, gradients::DestinationDtype dtype) override {
    if (is_wide_ && dtype != gradients::DestinationDtype::kAnyFloat) return false;
    ++sum_.puts;
    const bool adds = sum_.gradient.defined();
    if (!adds) {
      sum_.gradient = at::full(parameter().sizes(), std::numeric_limits<float>::quiet_NaN(),
                               is_wide_ ? parameter().detach().options().dtype(at::kFloat)
                                        : parameter().detach().options());
    }
    write(sum_.gradient, adds ? 1.0F : 0.0F);
    return true;
  }

 private:
  Sum& sum_;
  bool is_wide_;
};

}  // namespace ds::testing
