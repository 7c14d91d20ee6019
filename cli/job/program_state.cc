#include "cli/job/program_state.h"

namespace ds::cli {

v1::ProgramState MakeProgramState(const RankProgram& program) {
  v1::ProgramState state;
  state.mutable_argv()->Assign(program.argv.begin(), program.argv.end());
  state.set_script(program.script);
  state.set_has_interpreter(program.has_interpreter);
  state.set_local_rank_position(program.local_rank_position);
  for (const auto& [name, content] : program.files) {
    v1::ProgramState::File* file = state.add_files();
    file->set_name(name);
    file->set_content(content);
  }
  return state;
}

RankProgram ReadProgramState(const v1::ProgramState& state) {
  RankProgram program;
  program.argv.assign(state.argv().begin(), state.argv().end());
  program.script = state.script();
  program.has_interpreter = state.has_interpreter();
  program.local_rank_position = state.local_rank_position();
  for (const v1::ProgramState::File& file : state.files()) {
    program.files.emplace_back(file.name(), file.content());
  }
  return program;
}

}  // namespace ds::cli
