#pragma once

// Commands of other training programs (deepspeed, accelerate, axolotl, torchtune, LLaMA-Factory)
// that dsrun does not have, and what dsrun offers for their purpose.
//
// Pure; safe from any thread.

#include <string_view>

#include "runtime/base/status.h"

namespace ds::cli {

// Rejects a command of another program by naming the command or the flag of dsrun for the same
// purpose. Returns ok for every other word.
Status RefuseForeignCommand(std::string_view word);

}  // namespace ds::cli
