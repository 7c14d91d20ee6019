#pragma once

// SummingSink: collects a parameter's gradient, and counts how it came.

#include <ATen/ops/full.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <memory>

#include "runtime/autograd/put_gradient.h"

namespace ds::testing {

class SummingSink : public gradients::GradientSink {
 public:
  struct Sum {
    at::Tensor gradient;  // undefined before the first
    int puts = 0;
    int arrivals = 0;  // in the ordinary way
  };

  // Attaches a sink to the parameter, which sums in the parameter's dtype or, wide, in fp32.
  static std::shared_ptr<Sum> Attach(const at::Tensor& parameter, bool is_wide = false) {
    auto sum = std::make_shared<Sum>();
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<SummingSink>(sum, is_wide));
    return sum;
  }

  SummingSink(std::shared_ptr<Sum> sum, bool is_wide) : sum_(std::move(sum)), is_wide_(is_wide) {}

  void operator()(const torch::autograd::Variable& variable) override {
    if (!variable.grad().defined()) return;
    ++sum_->arrivals;
    sum_->gradient =
        sum_->gradient.defined() ? sum_->gradient + variable.grad() : variable.grad().clone();
    variable.mutable_grad().reset();
  }

  bool Put(const at::Tensor& parameter, const gradients::WriteGradient& write,
           gradients::PlaceDtype dtype) override {
    if (is_wide_ && dtype != gradients::PlaceDtype::kAnyFloat) return false;
    ++sum_->puts;
    const bool adds = sum_->gradient.defined();
    if (!adds) {
      sum_->gradient = at::full(
          parameter.sizes(), std::numeric_limits<float>::quiet_NaN(),
          is_wide_ ? parameter.detach().options().dtype(at::kFloat) : parameter.detach().options());
    }
    write(sum_->gradient, adds ? 1.0F : 0.0F);
    return true;
  }

 private:
  std::shared_ptr<Sum> sum_;
  bool is_wide_;
};

}  // namespace ds::testing
