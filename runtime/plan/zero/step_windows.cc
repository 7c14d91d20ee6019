#include "runtime/plan/zero/step_windows.h"

#include <optional>

#include "runtime/base/saturating.h"

namespace ds::zero {
namespace {

constexpr std::int64_t kMostLive = 1'000'000'000, kMostUnreduced = 500'000'000;
constexpr const char* kUnsharded = "ranks have all of them";

std::string Show(const char* key, std::int64_t elements) {
  return std::string(key) + " (" + std::to_string(elements) + ")";
}

std::string Compare(const std::string& key, std::int64_t needed, bool fits, const char* of_what) {
  return key + (fits ? " holds the " : " is below the ") + std::to_string(needed) + " " + of_what;
}

// Returns the reason why there is nothing to decide, or "".
std::string FindReasonForNone(bool sharded, const SteppedStage& stage) {
  if (!sharded) return kUnsharded;
  if (stage.stages == 1) return "there are no stages";
  return stage.micro_batches == 1 ? "a step has one micro-batch" : "";
}

// At most two passes through the stage are between two uses of a unit.
StepWindow ChooseForParameters(const config::ZeroConfig& zero, const SteppedStage& stage) {
  const std::int64_t live = zero.max_live_parameters.value_or(kMostLive);
  const std::int64_t distance = SaturatingProduct(2, stage.parameters);
  if (zero.max_reuse_distance && *zero.max_reuse_distance < distance) {
    return {.why = Compare(Show("stage3_max_reuse_distance", *zero.max_reuse_distance), distance,
                           /*fits=*/false, "parameters of two passes through the stage")};
  }
  const bool fits = stage.parameters <= live;
  return {.full_step = fits,
          .why = Compare(Show("stage3_max_live_parameters", live), stage.parameters, fits,
                         "parameters of the stage")};
}

StepWindow ChooseForGradients(const config::ZeroConfig& zero, const SteppedStage& stage) {
  const std::int64_t unreduced = zero.reduce_bucket_size.value_or(kMostUnreduced);
  const bool fits = stage.trained <= unreduced;
  return {.full_step = fits,
          .why = Compare(Show("reduce_bucket_size", unreduced), stage.trained, fits,
                         "gradients of the stage")};
}

}  // namespace

StepWindows ChooseStepWindows(const config::ZeroConfig& zero, const config::Sharding& sharding,
                              const SteppedStage& stage) {
  StepWindows windows{.parameters = {.why = FindReasonForNone(sharding.parameters, stage)},
                      .gradients = {.why = FindReasonForNone(sharding.gradients, stage)}};
  if (windows.parameters.why.empty()) windows.parameters = ChooseForParameters(zero, stage);
  if (windows.gradients.why.empty()) windows.gradients = ChooseForGradients(zero, stage);
  return windows;
}

std::string DescribeWindows(const StepWindows& windows) {
  const auto describe = [](const std::string& what, const char* moved, const StepWindow& window) {
    if (window.why == kUnsharded) return "ranks have all " + what;
    return what + " are " + moved +
           (window.full_step ? " once a step: " : " for each micro-batch: ") + window.why;
  };
  const auto& [parameters, gradients] = windows;
  if (parameters.why == gradients.why) {
    return describe("parameters and gradients", "gathered and reduced", parameters);
  }
  return describe("parameters", "gathered", parameters) + "; " +
         describe("gradients", "reduced", gradients);
}

}  // namespace ds::zero
