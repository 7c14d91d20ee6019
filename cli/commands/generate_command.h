#pragma once

// dsrun generate --model DIR [flags] PROMPT: text that a model goes on with, so that one sees what
// was trained.
//
// Judges what can be judged without tensors, then becomes dsrank (execve), which writes to this
// process's standard output: no daemon, no run directory, and signals and exit status are dsrank's.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/train/share_folder.h"
#include "runtime/base/status.h"
#include "runtime/config/generate_job.h"

namespace ds::cli {

struct GenerateFlags {
  std::string model;  // "" = not given, as everywhere here
  std::string prompt;
  std::string prompt_file;
  std::string tokenizer;
  bool chat = false;
  std::string system;
  bool greedy = false;
  bool sample = false;
  config::GenerateJob job;  // what needs no checks
};

// Reads the prompts and finds model and tokenizer. Errors say which flag is wrong.
StatusOr<config::GenerateJob> MakeGenerateJob(const GenerateFlags& flags, const ShareFolder& share);

}  // namespace ds::cli
