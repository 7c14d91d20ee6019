#pragma once

// The hostfiles of other launchers: what they mean here, and how to write it for dsrun where their
// meaning is not certain.
//
//     node[01-04] slots=8       Slurm, pdsh: four hosts with eight slots each
//     a, a, b, a line each      PBS, LSF: a slot for each line
//     a slots=8 max_slots=8     Open MPI: the limit never counts, ranks do not outnumber slots
//     a                         PBS, MPICH: one slot; Open MPI: one for each core: refused
//     a:8, a 8 all.q@a          MPICH, Grid Engine: refused, with the line to write
//     a,b slots=8               refused: 8 of each or of both
//
// Pure. Threads: safe from any.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// The hosts that `name` stands for: itself, or every name of a range like rack[1-2]n[01-08,12]; the
// last range counts fastest, and a leading zero gives the width. At most `most` of them. The error
// says why this is no name of a host, and what to write.
StatusOr<std::vector<std::string>> ExpandHostName(std::string_view name, int most);

// Says what to write in place of a line without slots=N; "" where the line says nothing that is
// known.
std::string TranslateHostLine(std::string_view line);

// True for a key that Open MPI's hostfiles have and that changes nothing here.
bool IsMaxSlots(std::string_view key);

}  // namespace ds::cli
