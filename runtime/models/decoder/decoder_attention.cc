#include "runtime/models/decoder/decoder_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <algorithm>

#include "runtime/device/kernels/attention.h"
#include "runtime/models/layers/attention.h"
#include "runtime/models/layers/key_value_cache.h"
#include "runtime/models/layers/shared_products.h"
#include "runtime/parallel/sequence/chunked_attention.h"
#include "runtime/parallel/sequence/ring_attention.h"

namespace ds::models {

SharedTables::SharedTables(const DecoderSlice& slice)
    : terms(std::make_shared<AttentionTerms>(*slice.plan, slice.own_heads())) {
  const DecoderSpec& spec = slice.spec();
  if (spec.positions != Positions::kRotary) return;
  angles = std::make_shared<RotaryAngles>(spec.rope, spec.head_width);
  windowed_angles = spec.windowed_rope
                        ? std::make_shared<RotaryAngles>(*spec.windowed_rope, spec.head_width)
                        : angles;
}

DecoderAttention::DecoderAttention(torch::nn::Module& layer, const DecoderSlice& slice,
                                   std::int64_t index, const SharedTables& tables,
                                   const at::TensorOptions& options)
    : layer_module_(&layer),
      group_(slice.group),
      sequence_(slice.sequence),
      shares_(slice.heads),
      copied_head_(slice.plan->copied_key_head()),
      first_head_(slice.plan->first_head() + slice.own_heads().first),
      own_heads_(slice.own_heads().count),
      layout_(slice.spec().qkv),
      query_key_norm_(slice.spec().query_key_norm),
      heads_(slice.spec().heads),
      kv_heads_(slice.spec().kv_heads),
      head_width_(slice.spec().head_width),
      value_width_(WidthOfValue(slice.spec())),
      layer_(index),
      scale_(AttentionScale(slice.spec(), index)),
      soft_cap_(slice.spec().attention_soft_cap),
      attention_dropout_(slice.spec().attention_dropout),
      residual_dropout_(slice.spec().residual_dropout),
      windowed_(slice.spec().window > 0 && slice.spec().KindOf(index).windowed),
      window_(windowed_ ? slice.spec().window : 0),
      terms_(tables.terms) {
  const DecoderSpec& spec = slice.spec();
  if (spec.KindOf(index).rotary) angles_ = windowed_ ? tables.windowed_angles : tables.angles;
  AddProducts(layer, spec, options);
  AddNorms(layer, spec, options);
}

void DecoderAttention::AddProducts(torch::nn::Module& layer, const DecoderSpec& spec,
                                   const at::TensorOptions& options) {
  const WeightNames& names = spec.names;
  const WeightLayout layout = spec.weights_are_in_out ? WeightLayout::kInOut : WeightLayout::kOutIn;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out, bool bias,
                       const tensor_parallel::TensorGroup& add_up = {}) {
    const Product::Shape shape{
        .in = in, .out = out, .bias = bias, .layout = layout, .add_up = add_up};
    return RegisterAt(layer, {names.attention, name}, MakeProduct(shape, options));
  };
  const std::int64_t query_width = heads_ * head_width_, key_width = kv_heads_ * head_width_;
  if (layout_ == QkvLayout::kLatent) {
    latent_ = std::make_unique<LatentProjection>(layer, spec, group_, options);
  } else if (layout_ == QkvLayout::kApart) {
    query_ = add(names.query, spec.width, query_width, spec.qkv_bias);
    key_ = add(names.key, spec.width, key_width, spec.qkv_bias);
    value_ = add(names.value, spec.width, key_width, spec.qkv_bias);
  } else {
    qkv_ = add(names.qkv, spec.width, query_width + 2 * key_width, spec.qkv_bias);
  }
  output_ = add(names.attention_output, heads_ * WidthOfValue(spec), spec.width,
                spec.attention_output_bias, group_);
}

void DecoderAttention::AddNorms(torch::nn::Module& layer, const DecoderSpec& spec,
                                const at::TensorOptions& options) {
  if (query_key_norm_ == QueryKeyNorm::kNone) return;
  const auto add = [&](const char* name, std::int64_t heads,
                       const tensor_parallel::TensorGroup& users) {
    const std::int64_t normed = query_key_norm_ == QueryKeyNorm::kPerHead ? 1 : heads;
    return RegisterAt(layer, {spec.names.attention, name},
                      MakeNorm(spec, normed * head_width_, options, users));
  };
  query_norm_ = add(spec.names.query_norm, heads_, group_);
  // If every rank has all keys, all ranks normalise the same values.
  const tensor_parallel::TensorGroup alone;
  key_norm_ = add(spec.names.key_norm, kv_heads_, copied_head_ ? alone : group_);
}

std::array<at::Tensor, 3> DecoderAttention::SplitFused(const at::Tensor& fused) const {
  const std::int64_t samples = fused.size(0), tokens = fused.size(1);
  if (layout_ == QkvLayout::kByGroup) {
    const std::int64_t queries = heads_ / kv_heads_;
    const at::Tensor groups = fused.view({samples, tokens, kv_heads_, queries + 2, head_width_});
    return {groups.narrow(3, 0, queries).reshape({samples, tokens, heads_, head_width_}),
            groups.select(3, queries), groups.select(3, queries + 1)};
  }
  const std::int64_t key_width = kv_heads_ * head_width_;
  const auto parts =
      fused.split_with_sizes({heads_ * head_width_, key_width, key_width}, /*dim=*/2);
  const std::vector<std::int64_t> shape{samples, tokens, -1, head_width_};
  return {parts[0].view(shape), parts[1].view(shape), parts[2].view(shape)};
}

at::Tensor DecoderAttention::ChooseHead(const at::Tensor& heads) const {
  if (!copied_head_) return heads;
  return group_.Share(heads, "keys and values").narrow(2, *copied_head_, 1);
}

std::array<at::Tensor, 3> DecoderAttention::ProjectApart(const at::Tensor& x,
                                                         const RandomPosition& origin) const {
  std::vector<const Product*> products{&*query_};
  // Results that every rank computes are shared after the products, not before.
  if (!copied_head_) products.insert(products.end(), {&*key_, &*value_});
  const auto shared = ShareAmongProducts(x, products, group_, "attention", &origin);
  at::Tensor query = shared[0], key = copied_head_ ? key_->forward(x, &origin) : shared[1];
  const at::Tensor value = copied_head_ ? value_->forward(x, &origin) : shared[2];
  if (query_key_norm_ == QueryKeyNorm::kFullWidth) {
    query = query_norm_->forward(query);
    key = key_norm_->forward(key);
  }
  const std::vector<std::int64_t> shape{x.size(0), x.size(1), -1, head_width_};
  return {query.view(shape), key.view(shape), value.view(shape)};
}

std::array<at::Tensor, 3> DecoderAttention::Project(const at::Tensor& x,
                                                    const RandomPosition& origin) const {
  if (latent_) return latent_->forward(x, origin);
  auto [query, key, value] =
      layout_ == QkvLayout::kApart
          ? ProjectApart(x, origin)
          : SplitFused(ShareAmongProducts(x, {&*qkv_}, group_, "attention", &origin)[0]);
  if (query_key_norm_ == QueryKeyNorm::kPerHead) {
    query = query_norm_->forward(query);
    key = key_norm_->forward(key);
  }
  return {query, ChooseHead(key), ChooseHead(value)};
}

std::array<at::Tensor, 3> DecoderAttention::RotateAndCache(
    const std::array<at::Tensor, 3>& projected, const Bundle& bundle) const {
  at::Tensor q = projected[0].transpose(1, 2), k = projected[1].transpose(1, 2);
  const at::Tensor v = projected[2].transpose(1, 2);
  if (angles_) {
    q = angles_->Rotate(q, bundle.batch, bundle.longest_document);
    k = angles_->Rotate(k, bundle.batch, bundle.longest_document);
  }
  if (bundle.cache == nullptr) return {q, k, v};
  TORCH_CHECK(sequence_.size() == 1, "a cache holds full samples, not those of sequence ranks");
  const auto [keys, values] = bundle.cache->Keep(layer_, k, v);
  return {q, keys, values};
}

at::Tensor DecoderAttention::ToOwnHeads(
    const at::Tensor& of_tokens, const std::vector<sequence_parallel::HeadRange>& shares) const {
  return sequence_.TokensToHeads(of_tokens.transpose(1, 2), shares).transpose(1, 2);
}

at::Tensor DecoderAttention::MixByHeads(at::Tensor q, at::Tensor k, at::Tensor v,
                                        const Bundle& bundle, double dropout) const {
  // From here on tensors hold all tokens and, with sequence ranks, this rank's share of the heads.
  q = ToOwnHeads(q, shares_.queries);
  k = ToOwnHeads(k, shares_.keys);
  v = ToOwnHeads(v, shares_.keys);
  const at::Tensor mixed =
      bundle.cache == nullptr || bundle.cache->begins()
          ? MixSamples(q, k, v, bundle, dropout)
          : CachedAttention(q, k, v,
                            {.scale = scale_,
                             .bias = terms_->FindCached(windowed_, *bundle.cache, q),
                             .soft_cap = soft_cap_});
  return sequence_.HeadsToTokens(mixed.transpose(1, 2).flatten(/*start_dim=*/2), shares_.queries);
}

namespace {

at::Tensor RunOrRecompute(const activation::RecomputedForward& part,
                          const activation::Tensors& inputs, const Bundle& bundle) {
  return bundle.recompute_attention
             ? activation::Recompute(part, inputs, *bundle.recompute_attention)[0]
             : part(inputs)[0];
}

}  // namespace

at::Tensor DecoderAttention::MixSamples(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const Bundle& bundle,
                                        double dropout) const {
  const activation::RecomputedForward part =
      [rule = MakeRule(bundle, q.size(2), q.device(), dropout)](const activation::Tensors& qkv) {
        return activation::Tensors{kernels::Attend(qkv[0], qkv[1], qkv[2], rule)};
      };
  return RunOrRecompute(part, {q, k, v}, bundle);
}

kernels::AttentionRule DecoderAttention::MakeRule(const Bundle& bundle, std::int64_t tokens,
                                                  c10::Device device, double dropout) const {
  kernels::AttentionRule rule{.scale = scale_,
                              .soft_cap = soft_cap_,
                              .window = window_,
                              .key_terms = terms_->FindKeyTerms(tokens, device)};
  // A cache, in whose first pass alone this is used, holds one document a sample.
  if (bundle.cache == nullptr) rule.documents = terms_->FindDocuments(bundle);
  if (dropout == 0.0) return rule;
  RandomPosition origin = bundle.random.StandingAt(0);
  origin.first_head += first_head_;
  rule.factors =
      [origin, dropout, heads = own_heads_,
       options = at::TensorOptions(at::kFloat).device(device)](const kernels::BlockRanges& ranges) {
        DropoutDraw draw{.probability = dropout,
                         .origin = origin.StandingAt(ranges.queries.first),
                         .site = DropoutSite::kAttention};
        draw.origin.first_sample += ranges.samples.first;
        draw.origin.first_column = ranges.keys.first;
        return DropoutFactors(
            {ranges.samples.count, heads, ranges.queries.count, ranges.keys.count}, draw, options);
      };
  return rule;
}

at::Tensor DecoderAttention::MixInRing(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const Bundle& bundle,
                                       double dropout) const {
  const activation::RecomputedForward part =
      [ring = sequence_, rule = MakeRule(bundle, q.size(2) * sequence_.size(), q.device(),
                                         dropout)](const activation::Tensors& qkv) {
        const at::Tensor mixed = sequence_parallel::RingAttention(
            ring, qkv[0], qkv[1], kernels::PadColumns(qkv[2], qkv[1].size(3)), rule);
        return activation::Tensors{mixed.narrow(3, 0, qkv[2].size(3))};
      };
  return RunOrRecompute(part, {q, k, v}, bundle).transpose(1, 2).flatten(/*start_dim=*/2);
}

sequence_parallel::ChunkFunctions DecoderAttention::MakeChunkFunctions(const Bundle& bundle,
                                                                       std::int64_t tokens,
                                                                       bool trains) const {
  using sequence_parallel::SequenceChunk;
  const Batch batch = bundle.batch;
  const auto position_of = [random = bundle.random](const SequenceChunk& chunk) {
    return random.StandingAt(random.PositionOf(chunk.own.first));
  };
  const std::int64_t longest = bundle.longest_document;
  sequence_parallel::ChunkFunctions parts;
  parts.project = [=, this](const at::Tensor& x, const SequenceChunk& chunk) {
    const auto projected = Project(x, position_of(chunk));
    at::Tensor q = projected[0].transpose(1, 2), k = projected[1].transpose(1, 2);
    if (angles_) {
      q = angles_->Rotate(q, batch, longest, chunk.own.first, tokens);
      k = angles_->Rotate(k, batch, longest, chunk.own.first, tokens);
    }
    const at::Tensor v = kernels::PadColumns(projected[2].transpose(1, 2), k.size(3));
    return kernels::Qkv{ToOwnHeads(q, shares_.queries), ToOwnHeads(k, shares_.keys),
                        ToOwnHeads(v, shares_.keys)};
  };
  parts.finish = [=, this](const at::Tensor& mixed, const SequenceChunk& chunk) {
    const at::Tensor rows =
        mixed.narrow(3, 0, value_width_).transpose(1, 2).flatten(/*start_dim=*/2);
    const DropoutDraw draw{.probability = trains ? residual_dropout_ : 0.0,
                           .origin = position_of(chunk),
                           .site = DropoutSite::kAttentionOutput};
    return Dropout(output_->forward(sequence_.HeadsToTokens(rows, shares_.queries), &draw.origin),
                   draw);
  };
  return parts;
}

namespace {

bool HasTrainedParameters(const torch::nn::Module& module) {
  const std::vector<at::Tensor> parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

}  // namespace

at::Tensor DecoderAttention::AttendInChunks(const at::Tensor& x, const Bundle& bundle,
                                            bool trains) const {
  const std::int64_t tokens = x.size(1);
  const auto chunks =
      sequence_parallel::ListChunks(tokens * sequence_.size(), sequence_.chunk(), sequence_.size());
  const auto parts = MakeChunkFunctions(bundle, tokens, trains);
  const auto rule =
      MakeRule(bundle, tokens * sequence_.size(), x.device(), trains ? attention_dropout_ : 0.0);
  const auto options = sequence_parallel::ChunkedAttentionOptions{
      .trains = HasTrainedParameters(*layer_module_), .keeper = bundle.keeper};
  if (!bundle.recompute_attention) {
    return sequence_parallel::AttendInChunks(x, chunks, parts, rule, options);
  }
  activation::RecomputeOptions again = *bundle.recompute_attention;
  again.trains = options.trains;
  const activation::RecomputedForward part = [=](const activation::Tensors& given) {
    return activation::Tensors{
        sequence_parallel::AttendInChunks(given[0], chunks, parts, rule, options)};
  };
  return activation::Recompute(part, {x}, again)[0];
}

at::Tensor DecoderAttention::forward(const at::Tensor& x, const Bundle& bundle, bool trains) const {
  const bool in_chunks = sequence_.chunk() > 0 && bundle.cache == nullptr &&
                         x.size(1) * sequence_.size() > sequence_.chunk();
  if (in_chunks) return AttendInChunks(x, bundle, trains);
  const auto [q, k, v] = RotateAndCache(Project(x, bundle.random), bundle);
  const double dropout = trains ? attention_dropout_ : 0.0;
  const at::Tensor mixed = sequence_.is_ring() ? MixInRing(q, k, v, bundle, dropout)
                                               : MixByHeads(q, k, v, bundle, dropout);
  return Dropout(output_->forward(mixed, &bundle.random),
                 {.probability = trains ? residual_dropout_ : 0.0,
                  .origin = bundle.random,
                  .site = DropoutSite::kAttentionOutput});
}

namespace {

// transformers gives these norms their class's default epsilon, not the config's.
constexpr double kEpsilon = 1e-6;

// [..., pairs of neighbours] -> [..., first of each pair, then second of each pair]
at::Tensor SplitPairs(const at::Tensor& x) {
  return x.unflatten(-1, {x.size(-1) / 2, 2}).transpose(-1, -2).flatten(-2);
}

}  // namespace

LatentProjection::LatentProjection(torch::nn::Module& layer, const DecoderSpec& spec,
                                   const tensor_parallel::TensorGroup& ranks,
                                   const at::TensorOptions& options)
    : ranks_(ranks),
      heads_(spec.heads),
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

at::Tensor LatentProjection::MoveRotatedFirst(const at::Tensor& heads) const {
  return at::cat({SplitPairs(heads.narrow(-1, still_, turned_)), heads.narrow(-1, 0, still_)}, -1);
}

std::array<at::Tensor, 3> LatentProjection::forward(const at::Tensor& x,
                                                    const RandomPosition& origin) const {
  const std::int64_t samples = x.size(0), tokens = x.size(1);
  const at::Tensor narrow =
      query_latent_ ? query_norm_->forward(query_latent_->forward(x, &origin)) : x;
  const at::Tensor query =
      MoveRotatedFirst(query_->forward(ranks_.Share(narrow, "queries"), &origin)
                           .view({samples, tokens, heads_, still_ + turned_}));
  const at::Tensor row = latent_->forward(x, &origin);
  const at::Tensor latent = norm_->forward(row.narrow(-1, 0, latent_width_).contiguous());
  const at::Tensor wide = wide_->forward(ranks_.Share(latent, "keys and values"), &origin)
                              .view({samples, tokens, heads_, still_ + value_width_});
  const at::Tensor turned = ranks_.Share(row.narrow(-1, latent_width_, turned_), "turned keys");
  const at::Tensor common =
      SplitPairs(turned).unsqueeze(2).expand({samples, tokens, heads_, turned_});
  const at::Tensor key = at::cat({common, wide.narrow(-1, 0, still_)}, -1);
  return {query, key, wide.narrow(-1, still_, value_width_)};
}

}  // namespace ds::models
