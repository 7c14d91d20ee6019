#include "runtime/plan/memory/latent_values.h"

namespace ds::models {

LatentValues CountLatentValues(const DecoderSpec& spec) {
  const std::int64_t turned = TurnedWidth(spec), of_queries = spec.query_latent_width;
  LatentValues values{.heads = spec.heads * spec.head_width,
                      .mixed = spec.heads * spec.value_width};
  values.wide = values.heads - spec.heads * turned + values.mixed;
  values.narrow = 2 * (spec.latent_width + of_queries);
  values.norms = of_queries > 0 ? 2 : 1;
  // The input and the output of each product.
  values.delayed = spec.width + 2 * of_queries + values.heads + spec.latent_width + turned +
                   spec.latent_width + values.wide;
  return values;
}

}  // namespace ds::models
