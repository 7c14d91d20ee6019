#pragma once

// `dsrund --serve`: the pool, and the daemons in it that wait for a job (warm_pool.h, handover.h).
//
// Threads: called by main, which returns what these return.

#include "daemon/job/supervisor.h"

namespace ds::daemon {

// Keeps `waiting` daemons waiting until a signal ends it. Says on standard output where controllers
// find them.
int ServePool(int waiting);

// One of them: everything is started, then a job is waited for, then served like any other. The
// descriptors are those of warm_pool.h; job and environment of `options` come with the job.
int ServeHandedOver(SupervisorOptions options);

}  // namespace ds::daemon
