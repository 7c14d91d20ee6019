#pragma once

// Rules about precision: fp16, bf16, and how gradients are accumulated and reduced.

#include <string_view>

#include "runtime/config/rules.h"

namespace ds::config {

void Fp16ExcludesBf16(RuleContext& context);
// Narrower sums would lose what the training dtype holds; fp16 and bf16 do not hold each other.
void GradientsAccumulateInTheTrainingDtypeOrWider(RuleContext& context);
// As in DeepSpeed: another key has decided it.
void ParameterDtypeIsTheTrainingDtype(RuleContext& context);
// A dynamic scale that may become 0 is none.
void LossScaleStaysPositive(RuleContext& context);
// The rule of stage 0 has no hysteresis, in DeepSpeed as here.
void HysteresisNeedsZero(RuleContext& context);
void PredivideFactorIsPositive(RuleContext& context);
// In DeepSpeed, whose overlapped reduction needs to know the boundary in advance. A null there
// follows the stage and is no wish.
void UnmanagedAccumulationDoesNotOverlap(RuleContext& context);
// As in DeepSpeed.
void SumOverRanksIsNotForStage3(RuleContext& context);
// Masters in 16 bit: from ZeRO stage 1, as in DeepSpeed. Beside them DeepSpeed keeps fp32 state
// only where its Adam for the host runs (offload_optimizer); here every optimizer does that works
// element by element.
void SixteenBitMastersNeedZero(RuleContext& context);
// Without 16-bit masters there is no narrower dtype to keep it in.
void NarrowStatesNeedNarrowMasters(RuleContext& context);

// Where state or gradients are sharded they go by shards, in DeepSpeed too.
void SparseGradientsAreForStage0(RuleContext& context);

// What lower_precision_safe_modules null stands for.
inline constexpr std::string_view kSafeModules[] = {"torch.nn.Linear", "torch.nn.Conv1d",
                                                    "torch.nn.Conv2d", "torch.nn.Conv3d"};

// Autocast is for fp32 weights, and DeepSpeed's ZeRO fails without a dtype.
void AutocastIsOnePrecision(RuleContext& context);
// A class that no model here can have asks for what would not happen.
void SafeModulesAreKnown(RuleContext& context);

}  // namespace ds::config
