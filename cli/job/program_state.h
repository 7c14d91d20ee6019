#pragma once

// Converts a RankProgram to its message and back, without its notices (proto/agent.proto).
//
// Pure.

#include "cli/job/program.h"
#include "proto/agent.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

v1::ProgramState MakeProgramState(const RankProgram& program);
RankProgram ReadProgramState(const v1::ProgramState& state);

}  // namespace ds::cli
