#include "runtime/models/cross_entropy_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "runtime/models/softmax_row.h"

namespace ds::models {
namespace {

template <typename Scalar>
void FusedRows(at::Tensor& logits, const RowLabels& labels, float gradient_scale,
               at::Tensor* losses) {
  auto* values = reinterpret_cast<Scalar*>(logits.data_ptr());
  const auto* ids = labels.ids.const_data_ptr<std::int64_t>();
  auto* out = losses->data_ptr<float>();
  const std::int64_t columns = logits.size(1);
  at::parallel_for(0, logits.size(0), /*grain_size=*/1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> wide(std::is_same_v<Scalar, BFloat16> ? columns : 0);
    for (std::int64_t row = begin; row < end; ++row) {
      Scalar* row_values = values + row * columns;
      if (ids[row] == labels.ignored) {
        std::fill_n(row_values, columns, Scalar{});
        out[row] = 0.0F;
      } else if constexpr (std::is_same_v<Scalar, BFloat16>) {
        out[row] = SoftmaxRow(row_values, columns, ids[row], gradient_scale, wide.data());
      } else {
        out[row] = SoftmaxRow(row_values, columns, ids[row], gradient_scale);
      }
    }
  });
}

}  // namespace

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
  if (logits.is_cpu() && logits.scalar_type() == at::kFloat) {
    FusedRows<float>(logits, row_labels, scale, losses);
  } else if (logits.is_cpu() && logits.scalar_type() == at::kBFloat16) {
    FusedRows<BFloat16>(logits, row_labels, scale, losses);
  } else {
    CrossEntropyRowsByOperators(logits, row_labels, gradient_scale, losses);
  }
}

}  // namespace ds::models
