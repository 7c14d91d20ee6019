#pragma once

// Hostfiles of other launchers: how dsrun reads them, and the replacement to suggest for ambiguous
// lines.
//
//     node[01-04] slots=8       Slurm, pdsh: four hosts with eight slots each
//     a, a, b, a line each      PBS, LSF: a slot for each line
//     a slots=8 max_slots=8     Open MPI: the limit never counts, ranks do not outnumber slots
//     a                         PBS, MPICH: one slot; Open MPI: one for each core: refused
//     a:8, a 8 all.q@a          MPICH, Grid Engine: refused, with the line to write
//     a,b slots=8               refused: 8 of each or of both
//
// Pure; safe from any thread.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// Expands `name` into hosts: itself, or every name of a range like rack[1-2]n[01-08,12]. The last
// range varies fastest, and a leading zero gives the width. Returns at most `most` names. The error
// says why this is not a host name and which form to use.
StatusOr<std::vector<std::string>> ExpandHostName(std::string_view name, int most);

// Returns the replacement for a line without slots=N; "" if the line matches no known format.
std::string TranslateHostLine(std::string_view line);

// True for max_slots, a key of Open MPI's hostfiles that has no effect in dsrun.
bool IsMaxSlots(std::string_view key);

}  // namespace ds::cli
