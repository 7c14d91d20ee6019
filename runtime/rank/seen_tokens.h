#pragma once

// SeenTokens: the part of the samples that a training step processes, if a ds_config schedules it
// (config/curriculum.h). It depends only on the step number.

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

// Truncates the samples of a micro-batch, [B, S], to `tokens` tokens, and updates the lengths in
// the bundle.
void TruncateSamples(std::int64_t tokens, Bundle* bundle);

class SeenTokens {
 public:
  SeenTokens() = default;  // all tokens
  explicit SeenTokens(config::DataEfficiency efficiency) : efficiency_(std::move(efficiency)) {}

  // Makes layers drop tokens, if configured. Returns an error if the model does not have the layers
  // that the config counts. Also rejects attention that depends on the distance between two tokens
  // of `seq_len`, because some tokens in between would be dropped.
  Status Prepare(const BlockList& model, const models::DecoderSpec& spec, std::int64_t seq_len);
  const config::DataEfficiency& efficiency() const { return efficiency_; }

  // Truncates the samples of a micro-batch for the step after `finished_steps` steps, and sets the
  // number of tokens that layers keep in it.
  void Limit(std::int64_t finished_steps, Bundle* bundle) const;

  // Applies Limit for the next step and returns the micro-batch. For a batch by tokens it passes
  // the batch's position in its step (`part`) and the resulting factor of the learning rate to the
  // engine. It reports both to `teller`, if not null and enabled in the config.
  Bundle Show(Bundle bundle, const std::optional<data::TokenBatches::StepRange>& part,
              Engine& engine, RankReporter* teller) const;

 private:
  config::DataEfficiency efficiency_;
  std::shared_ptr<models::TokenDrop> drop_;  // null: all layers process all tokens
};

}  // namespace ds::rank
