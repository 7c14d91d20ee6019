// gRPC ends its threads after the last channel is gone, beside the exit of the process. OpenSSL's
// exit handler deletes the key of its thread-local state, so a thread that ends after the handler
// leaks that state, and LeakSanitizer reports it. dsrun calls _Exit; a test program returns from
// main, so it does not register the handler.

#include <openssl/crypto.h>

namespace {

// Before anything else in the process can initialize OpenSSL.
[[maybe_unused]] const int initialized = ::OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

}  // namespace
