#include "runtime/comm/net/peer_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/comm/net/peer_silence.h"

namespace ds::comm {
namespace {

ssize_t SendParts(int fd, std::span<const std::byte> head, std::span<const std::byte> body) {
  std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(head.data()), head.size()},
                                iovec{const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message = {.msg_iov = parts.data(), .msg_iovlen = parts.size()};
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

class PlainStream : public PeerStream {
 public:
  explicit PlainStream(UniqueFd fd) : PeerStream(std::move(fd)) {}

  StatusOr<Handshake> Shake() override { return Handshake::kDone; }
  ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body) override {
    return SendParts(fd(), head, body);
  }
  ssize_t Read(std::span<std::byte> to) override { return ::recv(fd(), to.data(), to.size(), 0); }
  bool HoldsUnread() const override { return false; }
};

// Writes with MSG_NOSIGNAL, which OpenSSL's socket BIO lacks: a closed peer would end this process.
int WriteToSocket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  const ssize_t written = ::send(fd, bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL);
  if (written < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(written);
}

int ReadFromSocket(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  const ssize_t got = ::recv(fd, bytes, static_cast<std::size_t>(count), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long ControlSocket(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* MakeSocketMethod() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rank link");
  DS_CHECK(method != nullptr && BIO_meth_set_write(method, WriteToSocket) == 1 &&
           BIO_meth_set_read(method, ReadFromSocket) == 1 &&
           BIO_meth_set_ctrl(method, ControlSocket) == 1);
  return method;
}

BIO* MakeSocketBio(int fd) {
  static BIO_METHOD* const method = MakeSocketMethod();
  BIO* const bio = BIO_new(method);
  DS_CHECK(bio != nullptr);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

struct FreeSsl {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

class EncryptedStream : public PeerStream {
 public:
  EncryptedStream(UniqueFd fd, const std::string& secret, bool calls)
      : PeerStream(std::move(fd)), secret_(secret), context_(SSL_CTX_new(TLS_method())) {
    DS_CHECK(context_ != nullptr);
    SSL_CTX* const context = context_.get();
    // Use one version, one suite, no certificates, no tickets.
    DS_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
             SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
             SSL_CTX_set_num_tickets(context, 0) == 1);
    SSL_CTX_set_verify(context, calls ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
    // A truncated frame is detected by its length.
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_psk_use_session_callback(context, UseKey);
    SSL_CTX_set_psk_find_session_callback(context, FindKey);
    ssl_.reset(SSL_new(context));
    DS_CHECK(ssl_ != nullptr && SSL_set_app_data(ssl_.get(), this) == 1);
    BIO* const bio = MakeSocketBio(this->fd());
    SSL_set_bio(ssl_.get(), bio, bio);
    calls ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  }

  StatusOr<Handshake> Shake() override {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_NONE:
        break;
      case SSL_ERROR_WANT_READ:
        return Handshake::kReadable;
      case SSL_ERROR_WANT_WRITE:
        return Handshake::kWritable;
      default:
        return UnavailableError("the TLS handshake failed" + NameReason());
    }
    DS_CHECK(SSL_session_reused(ssl_.get()) == 1);  // the key was used
    return Handshake::kDone;
  }

  ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body) override {
    if (head.empty()) return WriteRecords(body);
    std::array<std::byte, kRecordBytes> joined;
    const auto end = std::copy(head.begin(), head.end(), joined.begin());
    const std::size_t more = std::min<std::size_t>(body.size(), joined.end() - end);
    std::copy_n(body.begin(), more, end);
    return WriteRecords({joined.data(), head.size() + more});
  }

  ssize_t Read(std::span<std::byte> to) override {
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), to.data(), ClampToInt(to.size()));
    return got > 0 ? got : SetErrno(got);
  }

  bool HoldsUnread() const override { return SSL_pending(ssl_.get()) > 0; }

 private:
  static constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
  // AES-GCM must encrypt fewer than 2^24.5 records per key (RFC 8446, 5.5).
  static constexpr std::uint64_t kBytesOfAKey = std::uint64_t{1} << 36;

  static int ClampToInt(std::size_t bytes) {
    return static_cast<int>(std::min<std::size_t>(bytes, std::numeric_limits<int>::max()));
  }

  ssize_t WriteRecords(std::span<const std::byte> bytes) {
    ERR_clear_error();
    const int written = SSL_write(ssl_.get(), bytes.data(), ClampToInt(bytes.size()));
    if (written <= 0) {
      if (SetErrno(written) == 0) errno = EPIPE;
      return -1;
    }
    written_ += static_cast<std::uint64_t>(written);
    if (written_ >= kBytesOfAKey) {
      written_ = 0;
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    return written;
  }

  // Sets errno as ::send and ::recv would.
  ssize_t SetErrno(int result) {
    const int of_call = errno;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      case SSL_ERROR_SYSCALL:
        errno = of_call;
        return of_call == 0 ? 0 : -1;
      default:
        errno = EBADMSG;
        return -1;
    }
  }

  static std::string NameReason() {
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason == nullptr ? "" : ": " + std::string(reason);
  }

  SSL_SESSION* MakeKeySession() const {
    static constexpr unsigned char kSuite[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
    SSL_SESSION* const session = SSL_SESSION_new();
    DS_CHECK(session != nullptr &&
             SSL_SESSION_set1_master_key(session,
                                         reinterpret_cast<const unsigned char*>(secret_.data()),
                                         secret_.size()) == 1 &&
             SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl_.get(), kSuite)) == 1 &&
             SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1);
    return session;
  }

  static int UseKey(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** id,
                    std::size_t* id_size, SSL_SESSION** session) {
    *session = static_cast<EncryptedStream*>(SSL_get_app_data(ssl))->MakeKeySession();
    *id = kKeyName;
    *id_size = sizeof(kKeyName);
    return 1;
  }

  static int FindKey(SSL* ssl, const unsigned char* id, std::size_t id_size,
                     SSL_SESSION** session) {
    *session = nullptr;
    if (!std::equal(id, id + id_size, std::begin(kKeyName), std::end(kKeyName))) return 1;
    *session = static_cast<EncryptedStream*>(SSL_get_app_data(ssl))->MakeKeySession();
    return 1;
  }

  static constexpr unsigned char kKeyName[] = {'d', 's', 'r', 'u', 'n'};

  const std::string secret_;
  std::unique_ptr<SSL_CTX, FreeSsl> context_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  std::uint64_t written_ = 0;  // with this key
};

}  // namespace

bool PeerStream::IsSilent(std::chrono::seconds silence) const {
  return comm::IsSilent(fd(), silence);
}

std::unique_ptr<PeerStream> MakePlainStream(UniqueFd fd) {
  return std::make_unique<PlainStream>(std::move(fd));
}

std::unique_ptr<PeerStream> MakeEncryptedStream(UniqueFd fd, const std::string& secret,
                                                bool calls) {
  return std::make_unique<EncryptedStream>(std::move(fd), secret, calls);
}

}  // namespace ds::comm
