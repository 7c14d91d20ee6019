#include "runtime/models/build_model.h"

namespace ds::models {

std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options) {
  if (std::holds_alternative<Gpt2Config>(config.family)) return BuildGpt2(config, options);
  return BuildLlama(config, options);
}

}  // namespace ds::models
