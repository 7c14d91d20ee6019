#pragma once

// ExitProcess ends this process without the exit handlers of libraries: threads of gRPC may be in
// the middle of a handshake, and OpenSSL's handlers must not run at the same time. Standard output
// is flushed. A build with AddressSanitizer looks for leaks first.
//
// Thread-safe.

namespace ds {

[[noreturn]] void ExitProcess(int status);

// Ends this process as a child of it has ended, by its wait status: with the same exit status, or
// by the same signal, without a core file of its own. Nothing is flushed.
[[noreturn]] void EndLikeChild(int wait_status);

}  // namespace ds
