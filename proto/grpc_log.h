#pragma once

// SendGrpcLogTo redirects gRPC's own log, which otherwise goes to standard error.
//
// gRPC also reports broken connections, refused handshakes and missing threads in the status of a
// call, and dsrun shows those errors to the user in its own words.

#include <grpc/support/log.h>

namespace dsrun::v1 {

// From now on `kSink` receives the messages, on any thread.
template <auto kSink>
void SendGrpcLogTo() {
  gpr_set_log_function([](gpr_log_func_args* line) { kSink(line->message); });
}

}  // namespace dsrun::v1
