#pragma once

// Where gRPC's own log goes, which is standard error unless somebody asks for it.
//
// What gRPC says of broken connections, refused handshakes and threads that it does not get comes
// back as the status of a call, too, and is told to the user in our own words.

#include <grpc/support/log.h>

namespace dsrun::v1 {

// From now on `kSink` gets the messages, on any thread.
template <auto kSink>
void SendGrpcLogTo() {
  gpr_set_log_function([](gpr_log_func_args* line) { kSink(line->message); });
}

}  // namespace dsrun::v1
