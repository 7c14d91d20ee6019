#include "runtime/device/kernels/attention_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

namespace ds::kernels {
namespace {

std::vector<TokenRange> FindRuns(std::span<const std::int64_t> numbers) {
  std::vector<TokenRange> runs;
  std::set<std::int64_t> seen;
  std::int64_t first = 0;
  for (std::size_t i = 1; i <= numbers.size(); ++i) {
    if (i < numbers.size() && numbers[i] == numbers[i - 1]) continue;
    runs.push_back({first, static_cast<std::int64_t>(i) - first});
    first = static_cast<std::int64_t>(i);
    TORCH_CHECK(seen.insert(numbers[i - 1]).second, "the tokens of document ", numbers[i - 1],
                " are not next to one another: token ", i - 1, " belongs to it, too");
  }
  return runs;
}

bool Overlap(TokenRange a, TokenRange b) { return a.first < b.end() && b.first < a.end(); }

}  // namespace

SampleDocuments::SampleDocuments(at::Tensor numbers, const at::Tensor& on_host)
    : numbers_(std::move(numbers)), on_host_(on_host) {
  TORCH_CHECK(numbers_.dim() == 2 && on_host.sizes() == numbers_.sizes(), "documents of the shape ",
              numbers_.sizes(), " have numbers on the host of ", on_host.sizes());
  const at::Tensor rows = on_host.to(at::kLong).contiguous();
  const auto width = static_cast<std::size_t>(rows.size(1));
  const std::span<const std::int64_t> all(rows.const_data_ptr<std::int64_t>(),
                                          static_cast<std::size_t>(rows.numel()));
  std::vector<std::int32_t> starts;
  for (std::size_t row = 0; row < all.size(); row += width) {
    documents_.push_back(FindRuns(all.subspan(row, width)));
    for (const TokenRange& document : documents_.back()) {
      starts.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(row) + document.first));
      longest_ = std::max(longest_, document.count);
    }
  }
  starts.push_back(static_cast<std::int32_t>(all.size()));
  starts_ = at::tensor(starts, at::kInt).to(numbers_.device(), /*non_blocking=*/true);
}

bool SampleDocuments::Connect(TokenRange a, TokenRange b) const {
  return std::ranges::any_of(documents_, [&](const std::vector<TokenRange>& of_sample) {
    return std::ranges::any_of(of_sample, [&](const TokenRange& document) {
      return Overlap(document, a) && Overlap(document, b);
    });
  });
}

bool AttentionRule::Sees(TokenRange queries, TokenRange keys) const {
  if (queries.count == 0 || keys.count == 0 || keys.first >= queries.end()) return false;
  if (window > 0 && keys.end() <= queries.first - window + 1) return false;
  return !documents || documents->Connect(queries, keys);
}

at::Tensor RelativeTerms(const AttentionRule& rule, TokenRange queries, TokenRange keys) {
  const at::Tensor of_last = rule.key_terms.narrow(1, queries.end() - 1, 1);
  return (rule.key_terms.narrow(1, keys.first, keys.count) - of_last)
      .to(at::kFloat)
      .unsqueeze(1)
      .unsqueeze(0);
}

}  // namespace ds::kernels
