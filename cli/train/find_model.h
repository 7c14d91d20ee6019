#pragma once

// FindModel says what `--model` means: a folder, a config.json, or the name of a preset.

#include <filesystem>
#include <string>

#include "cli/train/share_folder.h"
#include "runtime/base/status.h"
#include "runtime/config/check/job_facts.h"

namespace ds::cli {

// The path of the folder or file. NotFound names the presets that come near.
StatusOr<std::filesystem::path> FindModel(const std::string& model, const ShareFolder& share);

// Reads what its config.json says. NotFound when there is none.
StatusOr<config::ModelFacts> FindModelFacts(const std::string& model, const ShareFolder& share);

// OK when so many tensor ranks can have slices of it.
Status CheckTensorRanks(const std::string& model, int tensor, const ShareFolder& share);

}  // namespace ds::cli
