#include "runtime/models/build_model.h"

#include "runtime/base/check.h"
#include "runtime/models/decoder_embedding.h"
#include "runtime/models/decoder_layer.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/lm_head.h"
#include "runtime/models/spec/model_ranks.h"

namespace ds::models {

std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options,
                                      const ModelRanks& ranks) {
  DS_CHECK_MSG(config.decoder.experts == 0, "a decoder with experts cannot be built");
  const auto plan =
      TensorPlan::Create(config.decoder, ranks.tensor.rank(), ranks.tensor.size()).value();
  const DecoderSlice slice{.plan = std::make_shared<TensorPlan>(plan),
                           .group = ranks.tensor,
                           .sequence = ranks.sequence,
                           .heads = ShareHeads(plan, ranks.sequence.size()).value()};
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
