#pragma once

// SetUpGrpc redirects gRPC's own log, which otherwise goes to standard error, and ends the search
// for deadlocks in its mutexes. Call it before the first use of gRPC; it may be repeated.
//
// gRPC also reports broken connections, refused handshakes and missing threads in the status of a
// call, and dsrun shows those errors to the user in its own words. The search is meant for tests of
// Abseil, but Debian's build has it: the graph of all mutexes that are locked at the same time
// costs a controller of 1,000 hosts a quarter of its processor time.

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

namespace dsrun::v1 {

// From now on `kSink` receives the messages, on any thread.
template <auto kSink>
void SetUpGrpc() {
  gpr_set_log_function([](gpr_log_func_args* line) { kSink(line->message); });
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace dsrun::v1
