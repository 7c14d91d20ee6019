#include "runtime/models/layers/lm_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "runtime/autograd/put_gradient.h"
#include "runtime/device/autocast_scope.h"
#include "runtime/device/kernels/first_derivative.h"
#include "runtime/device/parallel.h"
#include "runtime/models/kernels/matmul.h"
#include "runtime/models/kernels/row_loops.h"
#include "runtime/models/kernels/rows.h"

namespace ds::models {
namespace {

template <typename Scalar>
void FusedRows(at::Tensor& logits, const RowLabels& labels, float gradient_scale,
               at::Tensor* losses) {
  auto* values = reinterpret_cast<Scalar*>(logits.data_ptr());
  const auto* ids = labels.ids.const_data_ptr<std::int64_t>();
  auto* out = losses->data_ptr<float>();
  const std::int64_t columns = logits.size(1);
  device::ParallelFor(
      0, logits.size(0), /*grain_size=*/1, [&](std::int64_t begin, std::int64_t end) {
        constexpr bool kIsNarrow = !std::is_same_v<Scalar, float>;
        std::vector<float> wide(kIsNarrow ? columns : 0);
        for (std::int64_t row = begin; row < end; ++row) {
          Scalar* row_values = values + row * columns;
          if (ids[row] == labels.ignored) {
            std::fill_n(row_values, columns, Scalar{});
            out[row] = 0.0F;
          } else if constexpr (kIsNarrow) {
            out[row] = SoftmaxRow(row_values, columns, ids[row], gradient_scale, wide.data());
          } else {
            out[row] = SoftmaxRow(row_values, columns, ids[row], gradient_scale);
          }
        }
      });
}

// VocabularyShardRows holds the logits of rows in one part's columns, and computes the part's
// contribution to their losses and gradients. Its methods overwrite `wide`, which is fp32.
class VocabularyShardRows {
 public:
  VocabularyShardRows(at::Tensor wide, const RowLabels& labels, std::int64_t first_column)
      : wide_(std::move(wide)) {
    const at::Tensor own = labels.ids - first_column;
    const at::Tensor is_elsewhere =
        own.lt(0).logical_or_(own.ge(wide_.size(1))).logical_or_(labels.ids.eq(labels.ignored));
    // A non-finite value in an ignored row must not count, either.
    wide_.masked_fill_(labels.ids.eq(labels.ignored).unsqueeze(1), 0.0);
    columns_ = own.masked_fill(is_elsewhere, 0).unsqueeze(1);
    is_here_ = is_elsewhere.logical_not().to(at::kFloat);
  }

  // Computes [3, rows]: the largest logit; the sum of exponentials relative to it, which overwrite
  // the rows; and the label's logit, 0 if another part has it.
  at::Tensor Exponentiate() {
    const at::Tensor at_label = wide_.gather(1, columns_).squeeze(1).mul_(is_here_);
    if (!wide_.is_cpu()) {
      const at::Tensor most = wide_.amax(1);
      wide_.sub_(most.unsqueeze(1)).exp_();
      return at::stack({most, wide_.sum(1), at_label});
    }
    at::Tensor sums = at::empty({3, wide_.size(0)}, wide_.options());
    auto* const most = sums.mutable_data_ptr<float>();
    ForEachRow([&](std::int64_t row, float* values) {
      const RowSums found = ExponentiateRow(values, wide_.size(1));
      most[row] = found.max;
      most[wide_.size(0) + row] = found.sum;
    });
    sums[2].copy_(at_label);
    return sums;
  }

  // Multiplies each row by its factor, then subtracts `scale` [rows] at the labels.
  const at::Tensor& ToGradient(const at::Tensor& factors, const at::Tensor& scale) {
    if (wide_.is_cpu()) {
      const auto* const factor = factors.const_data_ptr<float>();
      ForEachRow(
          [&](std::int64_t row, float* values) { ScaleRow(values, wide_.size(1), factor[row]); });
    } else {
      wide_.mul_(factors.unsqueeze(1));
    }
    return wide_.scatter_add_(1, columns_, (is_here_ * scale).neg_().unsqueeze(1));
  }

 private:
  template <typename Visit>
  void ForEachRow(const Visit& visit) {
    auto* const values = wide_.mutable_data_ptr<float>();
    const std::int64_t columns = wide_.size(1);
    device::ParallelFor(0, wide_.size(0), /*grain_size=*/1,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t row = begin; row < end; ++row)
                            visit(row, values + row * columns);
                        });
  }

  at::Tensor wide_, columns_, is_here_;
};

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Large enough that the products run at full speed, and that the weight gradient, read and written
// once per chunk, does not dominate. Small enough that the logits do not determine peak memory.
constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;
constexpr std::int64_t kLeastChunkRows = 64;

// On a GPU rows start at multiples of 16 bytes for any vocabulary size. Otherwise cuBLAS uses
// kernels that are several times slower, for three products of each chunk.
at::Tensor MakeLogits(std::int64_t rows, std::int64_t columns, const at::TensorOptions& options) {
  constexpr std::int64_t kMultiple = 8;
  if (options.device().is_cpu()) return at::empty({rows, columns}, options);
  const std::int64_t stride = (columns + kMultiple - 1) / kMultiple * kMultiple;
  return at::empty({rows, stride}, options).narrow(1, 0, columns);
}

struct Gradients {
  at::Tensor hidden;  // [N, H], undefined when not needed
  at::Tensor weight;  // [V, H], undefined when not needed
};

// The rows of one call, its chunks, and their sums.
class ChunkedLoss {
 public:
  ChunkedLoss(at::Tensor hidden, at::Tensor weight, at::Tensor labels, const LmLossOptions& options)
      : hidden_(std::move(hidden)),
        weight_(std::move(weight)),
        labels_(std::move(labels)),
        options_(options) {
    const LabelRange range = options.range ? *options.range : MeasureLabels(labels_);
    CheckLabels(range);
    scale_ = 1.0 / static_cast<double>(std::max<std::int64_t>(1, range.count));
  }

  // Returns the mean loss, and computes the required gradients in the same pass.
  at::Tensor Run(bool need_hidden, bool need_weight) {
    const std::int64_t rows = hidden_.size(0), step = std::min(rows, CountChunkRows());
    const bool need_gradients = need_hidden || need_weight;
    if (need_hidden) gradients_.hidden = at::empty_like(hidden_);
    const at::Tensor logits = MakeLogits(step, weight_.size(0), weight_.options());
    at::Tensor losses = at::empty({rows}, hidden_.options().dtype(at::kFloat));
    for (std::int64_t first = 0; first < rows; first += step) {
      const std::int64_t count = std::min(step, rows - first);
      at::Tensor chunk = logits.narrow(0, 0, count);
      const at::Tensor inputs = hidden_.narrow(0, first, count);
      at::Tensor chunk_losses = losses.narrow(0, first, count);
      MatMulInto(chunk, inputs, weight_.t());
      const at::Tensor slopes = CapLogits(chunk);
      const RowLabels targets{labels_.narrow(0, first, count), kIgnoredLabel};
      if (options_.hits != nullptr) {
        *options_.hits += CountHits(chunk, targets, options_.vocabulary);
      }
      CrossEntropyShardRows(chunk, targets, options_.vocabulary,
                            need_gradients ? scale_ * options_.expected_scale : 0.0, &chunk_losses);
      if (slopes.defined()) chunk.mul_(slopes);
      if (need_hidden) {
        at::Tensor out = gradients_.hidden.narrow(0, first, count);
        MatMulInto(out, chunk, weight_);
      }
      if (need_weight) AddWeightGradient(chunk, inputs);
    }
    return losses.sum() * scale_;
  }

  // Logits in the parameters' dtype.
  Gradients TakeGradients() {
    if (gradients_.weight.defined()) {
      gradients_.weight = gradients_.weight.to(weight_.scalar_type());
    }
    return std::move(gradients_);
  }

 private:
  std::int64_t vocabulary() const {
    const VocabularyShard& part = options_.vocabulary;
    return part.group.size() == 1 ? weight_.size(0) : part.all;
  }

  // The same on all ranks, although their parts may differ by a column.
  std::int64_t CountChunkRows() const {
    const std::int64_t parts = options_.vocabulary.group.size();
    const std::int64_t columns = (vocabulary() + parts - 1) / parts;
    return std::max(kLeastChunkRows,
                    kChunkBytes / (columns * static_cast<std::int64_t>(weight_.element_size())));
  }

  void CheckLabels(const LabelRange& range) const {
    if (range.least >= 0 && range.most < vocabulary()) return;
    const at::Tensor bad =
        labels_.ne(kIgnoredLabel).logical_and_(labels_.lt(0).logical_or_(labels_.ge(vocabulary())));
    const auto position = bad.nonzero()[0].item<std::int64_t>();
    TORCH_CHECK(false, "label ", labels_[position].item<std::int64_t>(), " at token ", position,
                " of the micro-batch is outside the vocabulary of ", vocabulary(), " tokens");
  }

  // Caps the logits in place and returns the slopes of the cap; undefined if there is no cap.
  at::Tensor CapLogits(at::Tensor& logits) const {
    if (options_.soft_cap == 0.0) return {};
    const at::Tensor capped = logits.div_(options_.soft_cap).tanh_();
    const at::Tensor slopes = 1.0 - capped.square();
    logits.mul_(options_.soft_cap);
    return slopes;
  }

  void AddWeightGradient(const at::Tensor& logit_gradients, const at::Tensor& inputs) {
    const bool first = !gradients_.weight.defined();
    if (first) gradients_.weight = at::empty(weight_.sizes(), weight_.options().dtype(at::kFloat));
    MatMulInto(gradients_.weight, logit_gradients.t(), inputs, first ? 0.0F : 1.0F);
  }

  at::Tensor hidden_, weight_, labels_;
  double scale_ = 0.0;  // 1 / number of labels that count
  LmLossOptions options_;
  Gradients gradients_;
};

// Options that cannot be read from autograd: inside forward nothing is recorded, and every tensor
// looks like a constant.
struct LossNeeds {
  bool hidden;
  bool weight;
  LmLossOptions options;
};

class LmLossFunction : public torch::autograd::Function<LmLossFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& labels,
                            const LossNeeds& needs) {
    ChunkedLoss chunks(hidden, weight, labels, needs.options);
    at::Tensor loss = chunks.Run(needs.hidden, needs.weight);
    context->saved_data["expected_scale"] = needs.options.expected_scale;
    Gradients gradients = chunks.TakeGradients();
    context->saved_data["hidden"] = std::move(gradients.hidden);
    context->saved_data["weight"] = std::move(gradients.weight);
    if (weight.is_leaf()) context->save_for_backward({weight});
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    kernels::CheckIsFirstDerivative("the language model's loss");
    TORCH_CHECK(!context->saved_data.empty(), "backward of the language model's loss ran twice");
    at::Tensor hidden = context->saved_data["hidden"].toTensor();
    at::Tensor weight = context->saved_data["weight"].toTensor();
    const double expected_scale = context->saved_data["expected_scale"].toDouble();
    // Released here, so that the accumulation into .grad can take over the buffers without a copy.
    context->saved_data.clear();
    const at::Tensor factor = FindFactor(upstream.at(0), expected_scale);
    if (factor.defined() && hidden.defined()) hidden.mul_(factor);
    // On a device the factor is applied in the pass that writes the gradient.
    const bool scales_later = factor.defined() && !factor.is_cpu();
    if (factor.defined() && weight.defined() && !scales_later) weight.mul_(factor);
    const auto write = [weight, factor = scales_later ? factor : at::Tensor()](at::Tensor& target,
                                                                               float beta) {
      WriteScaled(weight, factor, beta, target);
    };
    const variable_list parameter = context->get_saved_variables();  // may be empty
    const bool is_put =
        weight.defined() && !parameter.empty() && gradients::PutGradient(parameter[0], write);
    if (scales_later && weight.defined() && !is_put) weight.mul_(factor);
    return {hidden, is_put ? at::Tensor() : weight, {}, {}};
  }

 private:
  // Undefined if it is 1, as expected; this check saves passes over the gradients. On a device it
  // is not read, to avoid a wait, and it has a dimension: LibTorch rounds a scalar there to the
  // dtype of the other factor.
  static at::Tensor FindFactor(const at::Tensor& upstream, double expected_scale) {
    if (!upstream.is_cpu()) return (upstream / expected_scale).reshape({1});
    const double factor = upstream.item<double>() / expected_scale;
    return factor == 1.0 ? at::Tensor() : at::scalar_tensor(factor, at::kDouble);
  }

  static void WriteScaled(const at::Tensor& gradient, const at::Tensor& factor, float beta,
                          at::Tensor& target) {
    if (!factor.defined()) {
      beta == 0.0F ? target.copy_(gradient) : target.add_(gradient);
    } else if (beta == 0.0F) {
      at::mul_out(target, gradient, factor);
    } else {
      target.addcmul_(gradient, factor);
    }
  }
};

}  // namespace

std::int64_t CountLabels(const at::Tensor& labels) {
  return labels.ne(kIgnoredLabel).sum().item<std::int64_t>();
}

LabelRange MeasureLabels(const at::Tensor& labels) {
  if (labels.numel() == 0) return {};
  const at::Tensor counts = labels.ne(kIgnoredLabel);
  const at::Tensor some = labels.masked_fill(counts.logical_not(), 0);
  const at::Tensor numbers = at::stack({counts.sum(), some.min(), some.max()}).to(at::kCPU);
  const auto* first = numbers.const_data_ptr<std::int64_t>();
  return {.count = first[0], .least = first[1], .most = first[2]};
}

void CrossEntropyRowsByOperators(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                                 at::Tensor* losses) {
  const at::Tensor ignored = labels.ids.eq(labels.ignored);
  const at::Tensor columns = labels.ids.masked_fill(ignored, 0).unsqueeze(1);
  at::Tensor log_probability = at::log_softmax(logits, /*dim=*/1, at::kFloat);
  losses->copy_(log_probability.gather(1, columns).squeeze(1).neg_().masked_fill_(ignored, 0.0));
  if (gradient_scale == 0.0) return;
  at::Tensor gradient = log_probability.exp_();
  gradient.scatter_add_(1, columns, at::full_like(columns, -1.0, gradient.options()));
  logits.copy_(gradient.mul_(gradient_scale).masked_fill_(ignored.unsqueeze(1), 0.0));
}

void CrossEntropyRows(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                      at::Tensor* losses) {
  const at::Tensor ids = labels.ids.contiguous();
  const RowLabels row_labels{ids, labels.ignored};
  const auto scale = static_cast<float>(gradient_scale);
  if (HasRowLoops(logits)) {
    WithElementType(logits, [&]<typename Scalar>(Scalar) {
      FusedRows<Scalar>(logits, row_labels, scale, losses);
    });
  } else {
    CrossEntropyRowsByOperators(logits, row_labels, gradient_scale, losses);
  }
}

void CrossEntropyShardRows(at::Tensor& logits, const RowLabels& labels, const VocabularyShard& part,
                           double gradient_scale, at::Tensor* losses) {
  if (part.group.size() == 1) return CrossEntropyRows(logits, labels, gradient_scale, losses);
  VocabularyShardRows rows(logits.to(at::kFloat), labels, part.first);
  const at::Tensor all = part.group.Gather(rows.Exponentiate(), "cross entropy");
  const at::Tensor most = all.select(1, 0), most_of_all = most.amax(0);
  const at::Tensor of_all = (most - most_of_all).exp_();
  const at::Tensor sum = (of_all * all.select(1, 1)).sum(0);
  const at::Tensor counts = labels.ids.ne(labels.ignored).to(at::kFloat);
  const at::Tensor label_logit = all.select(1, 2).sum(0) - most_of_all;
  losses->copy_(sum.log().sub_(label_logit).mul_(counts));
  if (gradient_scale == 0.0) return;
  const at::Tensor scale = counts * gradient_scale;
  const at::Tensor factors = of_all[part.group.rank()] * scale / sum;
  const at::Tensor& gradient = rows.ToGradient(factors, scale);
  if (!gradient.is_same(logits)) logits.copy_(gradient);
}

std::int64_t CountHits(const at::Tensor& logits, const RowLabels& labels,
                       const VocabularyShard& part) {
  auto [most, indices] = logits.max(1);
  if (part.group.size() > 1) {
    // No vocabulary exceeds 2^24 tokens, the largest count that is exact in fp32.
    const at::Tensor own = at::stack({most.to(at::kFloat), (indices + part.first).to(at::kFloat)});
    const at::Tensor all = part.group.Gather(own, "most likely tokens");
    const at::Tensor best = all.select(1, 0).argmax(0, /*keepdim=*/true);
    indices = all.select(1, 1).gather(0, best).squeeze(0).to(at::kLong);
  }
  return indices.eq(labels.ids)
      .logical_and_(labels.ids.ne(labels.ignored))
      .sum()
      .item<std::int64_t>();
}

at::Tensor LmLoss(const at::Tensor& states, const at::Tensor& matrix, const at::Tensor& labels,
                  const LmLossOptions& options) {
  const at::Tensor hidden = precision::AutocastOperand(states),
                   weight = precision::AutocastOperand(matrix);
  const bool recording = c10::GradMode::is_enabled();
  const LossNeeds needs{.hidden = recording && hidden.requires_grad(),
                        .weight = recording && weight.requires_grad(),
                        .options = options};
  return LmLossFunction::apply(hidden.reshape({-1, hidden.size(-1)}), weight, labels.reshape({-1}),
                               needs);
}

}  // namespace ds::models
