#include <algorithm>

#include "runtime/plan/estimate/model_size.h"
#include "runtime/plan/model/count_parameters.h"
#include "runtime/plan/model/families.h"

namespace ds::plan {

bool IsKnownFamily(const nlohmann::ordered_json& config) {
  const auto found = config.is_object() ? config.find("model_type") : config.end();
  return found != config.end() && found->is_string() && models::IsFamily(found->get<std::string>());
}

StatusOr<ModelSize> SizeOfConfig(const nlohmann::ordered_json& config) {
  // Keys that change no shape are ignored.
  DS_ASSIGN_OR_RETURN(const models::DecoderSpec spec,
                      models::ReadDecoderSpec(config, "", models::UnknownKeys::kIgnore));
  DS_ASSIGN_OR_RETURN(const models::ParameterCount count, models::CountParameters(spec));
  return ModelSize{.params = count.all, .largest_layer_params = count.largest_module};
}

}  // namespace ds::plan
