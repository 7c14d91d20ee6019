#include "runtime/models/decoder/build_model.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/models/decoder/decoder_embedding.h"
#include "runtime/models/decoder/decoder_layer.h"
#include "runtime/models/decoder/lm_head.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/plan/model/model_ranks.h"

namespace ds::models {

std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options,
                                      const ModelRanks& ranks,
                                      const std::optional<StageBlocks>& part) {
  const auto plan =
      TensorPlan::Create(config.decoder, ranks.tensor.rank(), ranks.tensor.size()).value();
  DecoderSlice slice{
      .plan = std::make_shared<TensorPlan>(plan),
      .group = ranks.tensor,
      .sequence = ranks.sequence,
      .heads = ShareHeads(plan, ranks.sequence.size(), ranks.sequence.kind()).value(),
      .experts = ranks.experts};
  auto model = std::make_shared<BlockList>();
  const int blocks = static_cast<int>(config.decoder.layers) + 2;
  std::vector<BlockRange> chunks{{0, blocks}};
  if (part) {
    DS_CHECK(part->stages > 1 && part->all == blocks && !part->chunks.empty());
    model->SetPart(*part);
    chunks = part->chunks;
    const bool has_both = chunks.front().first == 0 && chunks.back().end == blocks;
    if (config.decoder.tied_head && !has_both) slice.table_stages = {0, part->stages - 1};
  }
  std::shared_ptr<DecoderEmbedding> embedding;  // null if another stage has it
  const SharedTables tables(slice);
  for (const BlockRange& range : chunks) {
    for (int i = range.first; i < range.end; ++i) {
      if (i == 0) {
        model->Add(embedding = std::make_shared<DecoderEmbedding>(slice, options));
      } else if (i < blocks - 1) {
        model->Add(std::make_shared<DecoderLayer>(slice, i - 1, tables, options));
      } else {
        AddLmHead(*model, slice, embedding ? embedding->tokens() : nullptr, options);
      }
    }
  }
  return model;
}

}  // namespace ds::models
