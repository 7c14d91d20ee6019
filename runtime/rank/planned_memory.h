#pragma once

// PlannedMemory: what this rank's job was predicted to hold, beside what it has held.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/device/activation_meter.h"
#include "runtime/zero/plan/step_memory.h"

namespace ds::rank {

// By the code that `dsrun estimate` asks. `model` is the config.json. None where its family cannot
// be predicted.
std::optional<zero::StepMemory> PlanRankMemory(const nlohmann::ordered_json& model,
                                               const config::DsConfig& config,
                                               const config::TrainJob& job,
                                               const comm::Communicator& world);

// For the user, behind the first step: "memory: planned ... at the most, ...; measured ...".
std::string ComparePlan(const zero::StepMemory& planned, const device::HeldBytes& measured);

}  // namespace ds::rank
