#pragma once

// SeenTokens: how much of its samples a step of the training sees, where a ds_config lets that grow
// (config/curriculum.h). It follows from the number of the step alone.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/config/curriculum.h"
#include "runtime/data/token_batches.h"
#include "runtime/engine/engine.h"
#include "runtime/models/block.h"
#include "runtime/models/decoder/token_drop.h"
#include "runtime/plan/model/decoder_spec.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// Cuts the samples of a micro-batch, [B, S], off behind so many tokens, with the lengths that the
// bundle tells. Waits for the device where it does.
void CutSamples(std::int64_t tokens, Bundle* bundle);

class SeenTokens {
 public:
  SeenTokens() = default;  // all
  explicit SeenTokens(config::DataEfficiency efficiency) : efficiency_(std::move(efficiency)) {}

  // Makes layers drop tokens, if some are to. Refuses a model that has not the layers that the
  // config counts, and one whose attention counts the tokens between two of `seq_len`, of which
  // some would be dropped.
  Status Prepare(const BlockList& model, const models::DecoderSpec& spec, std::int64_t seq_len);
  const config::DataEfficiency& efficiency() const { return efficiency_; }

  // Cuts the samples of a micro-batch of the step behind so many finished ones, and says how many
  // tokens layers keep in it.
  void Limit(std::int64_t finished_steps, Bundle* bundle) const;

  // Returns what the next step sees of a micro-batch (Limit). Of one by tokens the engine is told
  // where it stands in its step (`part`) and what that makes of the step's rate; `teller` hears of
  // it, if there is one and the config asks for that.
  Bundle Show(Bundle bundle, const std::optional<data::TokenBatches::StepPart>& part,
              Engine& engine, RankReporter* teller) const;

 private:
  config::DataEfficiency efficiency_;
  std::shared_ptr<models::TokenDrop> drop_;  // null: all layers see all tokens
};

}  // namespace ds::rank
