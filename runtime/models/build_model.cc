#include "runtime/models/build_model.h"

#include "runtime/base/check.h"
#include "runtime/models/decoder_embedding.h"
#include "runtime/models/decoder_layer.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/lm_head.h"

namespace ds::models {

std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options,
                                      const tensor_parallel::Group& tensor_ranks) {
  DS_CHECK_MSG(config.decoder.experts == 0, "a decoder with experts cannot be built");
  const auto plan = TensorPlan::Create(config.decoder, tensor_ranks.rank(), tensor_ranks.size());
  const DecoderSlice slice{.plan = std::make_shared<TensorPlan>(plan.value()),
                           .group = tensor_ranks};
  auto model = std::make_shared<BlockList>();
  auto embedding = std::make_shared<DecoderEmbedding>(slice, options);
  model->Add(embedding);
  const SharedTables tables(slice);
  for (std::int64_t i = 0; i < config.decoder.layers; ++i) {
    model->Add(std::make_shared<DecoderLayer>(slice, i, tables, options));
  }
  AddLmHead(*model, slice, embedding->tokens());
  return model;
}

}  // namespace ds::models
