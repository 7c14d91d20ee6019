#include "runtime/config/recompute_choice.h"

#include <string>

#include "runtime/base/parse_number.h"

namespace ds::config {

StatusOr<RecomputeChoice> ParseRecompute(std::string_view text) {
  constexpr std::string_view kEvery = "every:";
  using Kind = RecomputeChoice::Kind;
  if (text == "none") return RecomputeChoice{};
  if (text == "full") return RecomputeChoice{.kind = Kind::kBlocks};
  if (text == "attention") return RecomputeChoice{.kind = Kind::kAttention};
  if (text.starts_with(kEvery)) {
    const auto every = ParseNumber<int>(text.substr(kEvery.size()));
    if (every && *every >= 1) return RecomputeChoice{.kind = Kind::kBlocks, .every = *every};
  }
  return InvalidArgumentError("'" + std::string(text) +
                              "' is none of none, full, attention, every:N (N of 1 or more)");
}

bool IsRecomputed(const RecomputeChoice& choice, int index, int blocks) {
  return choice.kind == RecomputeChoice::Kind::kBlocks && index > 0 && index + 1 < blocks &&
         (index - 1) % choice.every == 0;
}

}  // namespace ds::config
