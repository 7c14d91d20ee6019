#pragma once

// ExitProcess ends this process without the exit handlers of libraries: threads of gRPC may be in
// the middle of a handshake, and OpenSSL's handlers must not run at the same time. Standard output
// is flushed. A build with AddressSanitizer looks for leaks first.
//
// Thread-safe.

namespace ds {

[[noreturn]] void ExitProcess(int status);

}  // namespace ds
