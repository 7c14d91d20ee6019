#pragma once

// Normalisations over the last dimension.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "runtime/parallel/tensor/group.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

class Norm : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) const = 0;
};

class LayerNorm : public Norm {
 public:
  LayerNorm(std::int64_t width, double epsilon, const at::TensorOptions& options,
            const tensor_parallel::TensorGroup& users = {});
  at::Tensor forward(const at::Tensor& x) const override;

 private:
  at::Tensor weight_, bias_;
  double epsilon_;
  tensor_parallel::TensorGroup users_;
};

class RmsNorm : public Norm {
 public:
  // `kind` is one of the three RMS norms.
  struct Shape {
    std::int64_t width = 0;
    double epsilon = 1e-6;
    NormKind kind = NormKind::kRms;
    tensor_parallel::TensorGroup users = {};  // as in MakeNorm
  };
  RmsNorm(const Shape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const override;

 private:
  at::Tensor weight_;
  double epsilon_;
  NormKind kind_;
  tensor_parallel::TensorGroup users_;
};

// Creates the norm of a decoder for `width` elements. The ranks of `users` apply it to different
// data with the same weight; the weight's gradient is the sum over them.
std::shared_ptr<Norm> MakeNorm(const DecoderSpec& spec, std::int64_t width,
                               const at::TensorOptions& options,
                               const tensor_parallel::TensorGroup& users = {});

// RMSNorm (Zhang and Sennrich, 2019) over the last dimension, in transformers' order: x / sqrt(mean
// of x^2 + epsilon) in fp32, rounded to x's dtype, then multiplied by the weight.

// x [..., width], weight [width]. Differentiable. If both have one dtype, on the CPU, it keeps x
// and one number per row. The weight's gradient does not depend on the number of threads.
at::Tensor NormaliseByRms(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace ds::models
