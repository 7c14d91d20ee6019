#include "runtime/rank/seen_tokens.h"

namespace ds::rank {

Status SeenTokens::Prepare(const BlockList& model) {
  const auto& drops = efficiency_.random_ltd;
  if (!drops) return OkStatus();
  DS_ASSIGN_OR_RETURN(drop_, models::AddTokenDrop(model, drops->total_layer_num, drops->layers));
  return OkStatus();
}

void SeenTokens::Limit(std::int64_t finished_steps, Bundle* bundle) const {
  if (drop_) drop_->kept = config::KeptTokensAt(*efficiency_.random_ltd, finished_steps);
  if (!efficiency_.curriculum) return;
  const std::int64_t tokens = config::DifficultyAt(*efficiency_.curriculum, finished_steps + 1);
  for (auto& [name, tensor] : bundle->batch) {
    if (tensor.size(1) > tokens) tensor = tensor.narrow(1, 0, tokens).contiguous();
  }
}

}  // namespace ds::rank
