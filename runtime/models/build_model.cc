#include "runtime/models/build_model.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/models/decoder_embedding.h"
#include "runtime/models/decoder_layer.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/lm_head.h"
#include "runtime/models/spec/model_ranks.h"

namespace ds::models {

std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options,
                                      const ModelRanks& ranks,
                                      const std::optional<StagePart>& part) {
  const auto plan =
      TensorPlan::Create(config.decoder, ranks.tensor.rank(), ranks.tensor.size()).value();
  DecoderSlice slice{.plan = std::make_shared<TensorPlan>(plan),
                     .group = ranks.tensor,
                     .sequence = ranks.sequence,
                     .heads = ShareHeads(plan, ranks.sequence.size()).value()};
  auto model = std::make_shared<BlockList>();
  const int blocks = static_cast<int>(config.decoder.layers) + 2;
  int first = 0, end = blocks;
  if (part) {
    DS_CHECK(part->stages > 1 && part->all == blocks && part->first < part->end);
    model->SetPart(*part);
    first = part->first;
    end = part->end;
    if (config.decoder.tied_head) slice.table_stages = {0, part->stages - 1};
  }
  std::shared_ptr<DecoderEmbedding> embedding;  // null where another stage has it
  if (first == 0) model->Add(embedding = std::make_shared<DecoderEmbedding>(slice, options));
  const SharedTables tables(slice);
  for (int i = std::max(first, 1); i < std::min(end, blocks - 1); ++i) {
    model->Add(std::make_shared<DecoderLayer>(slice, i - 1, tables, options));
  }
  if (end == blocks) AddLmHead(*model, slice, embedding ? embedding->tokens() : nullptr, options);
  return model;
}

}  // namespace ds::models
