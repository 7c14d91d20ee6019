#include "runtime/rank/seen_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/engine/deepspeed_api.h"

namespace ds::rank {

Status SeenTokens::Prepare(const BlockList& model, const models::DecoderSpec& spec,
                           std::int64_t seq_len) {
  using models::Positions;
  const auto& drops = efficiency_.random_ltd;
  if (!drops) return OkStatus();
  const bool has_slopes =
      spec.positions == Positions::kAlibi || spec.positions == Positions::kAlibiRounded;
  if (has_slopes || (spec.window > 0 && spec.window < seq_len)) {
    return UnimplementedError(
        "data_efficiency.data_routing.random_ltd: the model's attention depends on distances (" +
        std::string(has_slopes ? "ALiBi" : "a sliding window") +
        "), and those between the tokens that a layer keeps are not built");
  }
  DS_ASSIGN_OR_RETURN(drop_, models::AddTokenDrop(model, drops->total_layer_num, drops->layers));
  return OkStatus();
}

void SeenTokens::Limit(std::int64_t finished_steps, Bundle* bundle) const {
  if (drop_) drop_->kept = config::KeptTokensAt(*efficiency_.random_ltd, finished_steps);
  if (!efficiency_.curriculum) return;
  TruncateSamples(config::DifficultyAt(*efficiency_.curriculum, finished_steps + 1), bundle);
}

// The lengths are updated because rotary angles and noise depend on them.
void TruncateSamples(std::int64_t tokens, Bundle* bundle) {
  if (bundle->tensor("tokens").size(1) <= tokens) return;
  for (auto& [name, tensor] : bundle->batch) tensor = tensor.narrow(1, 0, tokens).contiguous();
  bundle->longest_sample = std::min(bundle->longest_sample, tokens);
  const at::Tensor& documents = bundle->tensor("documents");
  if (documents.defined()) {
    const at::Tensor on_host =
        bundle->documents ? bundle->documents->on_host().narrow(1, 0, tokens) : documents.cpu();
    bundle->documents = std::make_shared<const kernels::SampleDocuments>(documents, on_host);
  }
  const std::int64_t longest = bundle->documents ? bundle->documents->longest() : tokens;
  bundle->longest_document = std::min(bundle->longest_document, longest);
}

Bundle SeenTokens::Show(Bundle bundle, const std::optional<data::TokenBatches::StepRange>& part,
                        Engine& engine, RankReporter* teller) const {
  Limit(engine.finished_steps(), &bundle);
  if (!part) return bundle;
  const config::DynamicBatching& batching = *efficiency_.dynamic_batching;
  engine::DeepSpeedApi api(engine);
  const double factor =
      RateFactor(batching.rate_scaling, api.batch_sizes().train_batch_size, part->samples);
  api.place_batch(part->first, factor);
  if (batching.verbose && teller != nullptr && part->first == 0) {
    teller->ReportNotice("step " + std::to_string(engine.finished_steps() + 1) + ": " +
                         std::to_string(part->samples) + " samples, the learning rate " +
                         nlohmann::json(api.lr()).dump() + " (times " +
                         nlohmann::json(factor).dump() + ")");
  }
  return bundle;
}

}  // namespace ds::rank
