#include "runtime/plan/model/decoder_spec.h"

#include <cmath>
#include <string>

#include "runtime/base/check.h"

namespace ds::models {

void AddResidualMlp(DecoderSpec* spec) {
  DS_CHECK(spec->experts > 0 && spec->shared_expert_width == 0);
  spec->shared_expert_width = WidthOfExpert(*spec);
  spec->shared_expert_mix = SharedExpertMix::kWeighted;
  spec->names.shared_expert = "residual_mlp";
  spec->names.shared_expert_gate = "coefficient";
}

double AttentionScale(const DecoderSpec& spec, std::int64_t layer) {
  double scale = 1.0;
  if (spec.scales_scores) {
    const double width = spec.query_scale_width > 0.0 ? spec.query_scale_width
                                                      : static_cast<double>(spec.head_width);
    scale /= std::sqrt(width);
  }
  if (spec.scales_by_rope) scale *= spec.rope.magnitude * spec.rope.magnitude;
  return spec.scales_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

Status CheckLength(const DecoderSpec& spec, std::int64_t tokens) {
  // Rotary angles that are scaled by the sequence length have no last position.
  const bool stretches =
      spec.positions == Positions::kRotary && spec.rope.scaling == RopeSpec::Scaling::kDynamic;
  if (tokens >= 1 && (tokens <= spec.max_positions || stretches)) return OkStatus();
  return InvalidArgumentError("a sequence of " + std::to_string(tokens) +
                              " tokens does not fit the model, which has " +
                              std::to_string(spec.max_positions) + " positions");
}

}  // namespace ds::models
