#include "runtime/models/spec/decoder_spec.h"

#include <cmath>

namespace ds::models {

double AttentionScale(const DecoderSpec& spec, std::int64_t layer) {
  double scale = 1.0;
  if (spec.scales_scores) {
    const double width = spec.query_scale_width > 0.0 ? spec.query_scale_width
                                                      : static_cast<double>(spec.head_width);
    scale /= std::sqrt(width);
  }
  return spec.scales_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

}  // namespace ds::models
