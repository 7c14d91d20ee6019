#pragma once

// Guardian: a process above dsrund. What ranks have started outlives a dsrund that is killed, which
// the ranks themselves do not; it falls to the guardian, which ends it, removes what dsrund had
// made, and then ends as dsrund did: with its status or by its signal.
//
// It does and holds nothing else, so that nothing ends it but a kill. Signals that ask it to end
// are passed on to dsrund; when it is killed itself, dsrund gets SIGTERM and ends everything as
// usual. Only who kills both at once leaves something behind, which the dsrun that started them, or
// the next dsrund, ends where there are control groups (runtime/process/owned_cgroup.h).
//
// Threads: call from main, before there are others.

#include "runtime/base/status.h"

namespace ds::daemon {

// Forks. Returns in the child, which is dsrund from then on; the calling process becomes the
// guardian and does not return. Its descriptors, standard streams included, are the child's alone.
Status ContinueUnderGuardian();

}  // namespace ds::daemon
