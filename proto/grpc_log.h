#pragma once

// SendGrpcLogTo takes gRPC's own log from standard error, where it would go.
//
// gRPC tells of broken connections, refused handshakes and threads that it does not get in the
// status of a call, too, and the user reads that in our own words.

#include <grpc/support/log.h>

namespace dsrun::v1 {

// From now on `kSink` gets the messages, on any thread.
template <auto kSink>
void SendGrpcLogTo() {
  gpr_set_log_function([](gpr_log_func_args* line) { kSink(line->message); });
}

}  // namespace dsrun::v1
