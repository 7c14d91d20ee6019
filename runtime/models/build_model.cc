#include "runtime/models/build_model.h"

#include "runtime/base/check.h"
#include "runtime/models/decoder_embedding.h"
#include "runtime/models/decoder_layer.h"
#include "runtime/models/lm_head.h"

namespace ds::models {

std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options) {
  const DecoderSpec& spec = config.decoder;
  DS_CHECK_MSG(spec.experts == 0, "a decoder with experts cannot be built");
  auto model = std::make_shared<BlockList>();
  auto embedding = std::make_shared<DecoderEmbedding>(spec, options);
  model->Add(embedding);
  const SharedTables tables(spec);
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    model->Add(std::make_shared<DecoderLayer>(spec, i, tables, options));
  }
  AddLmHead(*model, spec, embedding->tokens());
  return model;
}

}  // namespace ds::models
