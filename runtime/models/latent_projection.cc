#include "runtime/models/latent_projection.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

namespace ds::models {
namespace {

// transformers gives these norms their class's epsilon, not the config's.
constexpr double kEpsilon = 1e-6;

// [..., pairs of neighbours] -> [..., the first ones, the second ones]
at::Tensor SplitPairs(const at::Tensor& x) {
  return x.unflatten(-1, {x.size(-1) / 2, 2}).transpose(-1, -2).flatten(-2);
}

}  // namespace

LatentProjection::LatentProjection(torch::nn::Module& layer, const DecoderSpec& spec,
                                   const at::TensorOptions& options)
    : heads_(spec.heads),
      latent_width_(spec.latent_width),
      turned_(TurnedWidth(spec)),
      still_(spec.head_width - turned_),
      value_width_(WidthOfValue(spec)) {
  const WeightNames& names = spec.names;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out, bool bias) {
    return RegisterAt(layer, {names.attention, name},
                      MakeProduct({.in = in, .out = out, .bias = bias}, options));
  };
  const auto add_norm = [&](const char* name, std::int64_t width) {
    const RmsNorm::Shape shape{.width = width, .epsilon = kEpsilon, .kind = spec.norm};
    return RegisterAt(layer, {names.attention, name}, std::make_shared<RmsNorm>(shape, options));
  };
  const std::int64_t query_width = heads_ * spec.head_width, of_queries = spec.query_latent_width;
  if (of_queries > 0) {
    query_latent_ = add(names.query_latent, spec.width, of_queries, spec.qkv_bias);
    query_norm_ = add_norm(names.query_latent_norm, of_queries);
    query_ = add(names.query_wide, of_queries, query_width, /*bias=*/false);
  } else {
    query_ = add(names.query, spec.width, query_width, /*bias=*/false);
  }
  latent_ = add(names.latent, spec.width, latent_width_ + turned_, spec.qkv_bias);
  norm_ = add_norm(names.latent_norm, latent_width_);
  wide_ = add(names.latent_wide, latent_width_, heads_ * (still_ + value_width_), /*bias=*/false);
}

at::Tensor LatentProjection::TurnedFirst(const at::Tensor& heads) const {
  return at::cat({SplitPairs(heads.narrow(-1, still_, turned_)), heads.narrow(-1, 0, still_)}, -1);
}

std::array<at::Tensor, 3> LatentProjection::forward(const at::Tensor& x) const {
  const std::int64_t samples = x.size(0), tokens = x.size(1);
  const at::Tensor narrow = query_latent_ ? query_norm_->forward(query_latent_->forward(x)) : x;
  const at::Tensor query =
      TurnedFirst(query_->forward(narrow).view({samples, tokens, heads_, still_ + turned_}));
  const at::Tensor row = latent_->forward(x);
  const at::Tensor latent = norm_->forward(row.narrow(-1, 0, latent_width_).contiguous());
  const at::Tensor wide =
      wide_->forward(latent).view({samples, tokens, heads_, still_ + value_width_});
  const at::Tensor common = SplitPairs(row.narrow(-1, latent_width_, turned_))
                                .unsqueeze(2)
                                .expand({samples, tokens, heads_, turned_});
  const at::Tensor key = at::cat({common, wide.narrow(-1, 0, still_)}, -1);
  return {query, key, wide.narrow(-1, still_, value_width_)};
}

}  // namespace ds::models
