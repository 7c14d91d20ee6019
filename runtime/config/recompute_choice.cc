#include "runtime/config/recompute_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "runtime/base/parse_number.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

const std::vector<std::string>& RecomputeForms() {
  static const std::vector<std::string> kForms = {"none", "full", "attention", "every:N"};
  return kForms;
}

StatusOr<RecomputeChoice> ParseRecompute(std::string_view text) {
  constexpr std::string_view kEvery = "every:";
  using Kind = RecomputeChoice::Kind;
  if (text == "none") return RecomputeChoice{};
  if (text == "auto") return RecomputeChoice{.kind = Kind::kByConfig};
  if (text == "full") return RecomputeChoice{.kind = Kind::kBlocks};
  if (text == "attention") return RecomputeChoice{.kind = Kind::kAttention};
  if (text.starts_with(kEvery)) {
    const auto every = ParseNumber<int>(text.substr(kEvery.size()));
    if (every && *every >= 1) return RecomputeChoice{.kind = Kind::kBlocks, .every = *every};
  }
  return InvalidArgumentError(
      fmt::format("'{}' is none of {} (N of 1 or more)", text, fmt::join(RecomputeForms(), ", ")));
}

RecomputeChoice DecideRecompute(const RecomputeChoice& choice, const DsConfig& config) {
  using Kind = RecomputeChoice::Kind;
  if (choice.kind != Kind::kByConfig) return choice;
  const bool by_interval =
      config.parallel.pipeline > 1 && config.pipeline.activation_checkpoint_interval > 0;
  const bool asks = config.activation_checkpointing.asked_for || by_interval;
  return {.kind = asks ? Kind::kBlocks : Kind::kNone};
}

bool IsRecomputed(const RecomputeChoice& choice, int index, int blocks) {
  return choice.kind == RecomputeChoice::Kind::kBlocks && index > 0 && index + 1 < blocks &&
         (index - 1) % choice.every == 0;
}

Status CheckBufferedPartitions(std::int64_t parts, std::int64_t recomputed_layers) {
  if (recomputed_layers <= parts) return OkStatus();
  const std::string layers = std::to_string(recomputed_layers);
  return InvalidArgumentError("activation_checkpointing.number_checkpoints is " +
                              std::to_string(parts) + ", and a rank recomputes " + layers +
                              " layers in a pass: write " + layers +
                              " or more, or leave out contiguous_memory_optimization");
}

}  // namespace ds::config
