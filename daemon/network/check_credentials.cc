#include "daemon/network/check_credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <string>

#include "runtime/process/freer.h"

namespace ds::daemon {
namespace {

using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;

Bio OpenText(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

StatusOr<Certificate> ReadCertificate(const std::string& pem, const char* field) {
  const Bio bio = OpenText(pem);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (!certificate) return InvalidArgumentError(std::string(field) + ": not a PEM certificate");
  return certificate;
}

// Returns an empty password, so that OpenSSL does not prompt for one.
int RefusePassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

StatusOr<Key> ReadKey(const std::string& pem) {
  const Bio bio = OpenText(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, RefusePassword, nullptr));
  ERR_clear_error();
  if (!key) return InvalidArgumentError("private_key: not a PEM private key");
  return key;
}

std::string FormatTime(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string("?");
}

Status CheckDates(const X509& certificate, std::int64_t unix_seconds) {
  std::time_t now = unix_seconds;
  const ASN1_TIME* begin = X509_get0_notBefore(&certificate);
  const ASN1_TIME* end = X509_get0_notAfter(&certificate);
  if (X509_cmp_time(begin, &now) < 0 && X509_cmp_time(end, &now) > 0) return OkStatus();
  const std::unique_ptr<ASN1_TIME, Freer<ASN1_TIME_free>> clock(ASN1_TIME_set(nullptr, now));
  return FailedPreconditionError("the clock of this host shows " + FormatTime(clock.get()) +
                                 ", the job's certificate is valid from " + FormatTime(begin) +
                                 " to " + FormatTime(end) + "; set the clock");
}

Status CheckChain(X509* authority, X509* certificate, std::int64_t unix_seconds) {
  const Store store(X509_STORE_new());
  const StoreContext context(X509_STORE_CTX_new());
  if (!store || !context || X509_STORE_add_cert(store.get(), authority) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr) != 1) {
    return InternalError("cannot check the job's certificate");
  }
  X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_SERVER);
  X509_STORE_CTX_set_time(context.get(), 0, unix_seconds);
  if (X509_verify_cert(context.get()) == 1) return OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  return PermissionDeniedError(std::string("certificate: ") + X509_verify_cert_error_string(error));
}

}  // namespace

Status CheckCredentials(const v1::Credentials& credentials, std::int64_t unix_seconds) {
  DS_ASSIGN_OR_RETURN(const Certificate authority,
                      ReadCertificate(credentials.ca_certificate(), "ca_certificate"));
  DS_ASSIGN_OR_RETURN(const Certificate certificate,
                      ReadCertificate(credentials.certificate(), "certificate"));
  DS_ASSIGN_OR_RETURN(const Key key, ReadKey(credentials.private_key()));
  const bool fits = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits) return InvalidArgumentError("private_key: not the key of the certificate");
  DS_RETURN_IF_ERROR(CheckDates(*certificate, unix_seconds));
  return CheckChain(authority.get(), certificate.get(), unix_seconds);
}

}  // namespace ds::daemon
