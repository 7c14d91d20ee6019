#include "cli/remote/job_authority.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "proto/peer_name.h"
#include "runtime/base/clock.h"
#include "runtime/process/freer.h"

namespace ds::cli {
namespace {

using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using BigNumber = std::unique_ptr<BIGNUM, Freer<BN_free>>;

constexpr std::int64_t kYear = 31'556'952;
// If the clock of this machine was never set, certificates made by it would be expired elsewhere.
// They are then dated as if the time were this.
constexpr std::int64_t kEarliestNow = 1'767'225'600;  // 2026-01-01
constexpr int kSerialBits = 127;                      // positive in 16 bytes
constexpr std::size_t kLongestJobId = 128;

Status OpensslError(const std::string& what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return InternalError(what + ": " + text.data());
}

StatusOr<std::string> ReadBio(BIO* bio, const std::string& what) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  if (size <= 0) return OpensslError(what);
  return std::string(data, static_cast<std::size_t>(size));
}

StatusOr<std::string> CertificatePem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), certificate) != 1) return OpensslError("certificate");
  return ReadBio(bio.get(), "certificate");
}

StatusOr<std::string> KeyPem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_secmem()));
  if (!bio ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return OpensslError("private key");
  }
  return ReadBio(bio.get(), "private key");
}

bool SetRandomSerial(X509* certificate) {
  const BigNumber number(BN_new());
  return number && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetName(X509_NAME* name, const std::string& text) {
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1,
                                    0) == 1;
}

bool AddExtension(X509* certificate, int nid, const std::string& value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// Returns a certificate of `key` for `name`, without extensions and signature.
Certificate MakeUnsigned(EVP_PKEY* key, const std::string& name, const CertificateDates& dates) {
  Certificate certificate(X509_new());
  if (!certificate || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !SetRandomSerial(certificate.get()) ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), dates.not_before) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), dates.not_after) == nullptr ||
      X509_set_pubkey(certificate.get(), key) != 1 ||
      !SetName(X509_get_subject_name(certificate.get()), name)) {
    return nullptr;
  }
  return certificate;
}

bool IsPlainJobId(const std::string& job_id) {
  return !job_id.empty() && job_id.size() <= kLongestJobId &&
         std::all_of(job_id.begin(), job_id.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                  c == '.';
         });
}

}  // namespace

struct JobAuthority::Keys {
  std::string job_id;
  CertificateDates dates{};
  Key key;
  Certificate certificate;
  std::string certificate_pem;

  Status MakeRoot();
  StatusOr<v1::Credentials> Issue(const std::string& name, const char* usage,
                                  const std::optional<CertificateDates>& other_dates) const;
};

Status JobAuthority::Keys::MakeRoot() {
  key.reset(EVP_EC_gen("P-256"));
  if (!key) return OpensslError("key of the job's certificate authority");
  certificate = MakeUnsigned(key.get(), "dsrun job authority", dates);
  X509* root = certificate.get();
  if (!certificate || X509_set_issuer_name(root, X509_get_subject_name(root)) != 1 ||
      !AddExtension(root, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(root, NID_key_usage, "critical,keyCertSign") ||
      X509_sign(root, key.get(), EVP_sha256()) == 0) {
    return OpensslError("certificate of the job's certificate authority");
  }
  DS_ASSIGN_OR_RETURN(certificate_pem, CertificatePem(root));
  return OkStatus();
}

StatusOr<v1::Credentials> JobAuthority::Keys::Issue(
    const std::string& name, const char* usage,
    const std::optional<CertificateDates>& other_dates) const {
  const Key leaf_key(EVP_EC_gen("P-256"));
  if (!leaf_key) return OpensslError("key of " + name);
  const Certificate leaf = MakeUnsigned(leaf_key.get(), "dsrun", other_dates.value_or(dates));
  if (!leaf || X509_set_issuer_name(leaf.get(), X509_get_subject_name(certificate.get())) != 1 ||
      !AddExtension(leaf.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(leaf.get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(leaf.get(), NID_ext_key_usage, usage) ||
      !AddExtension(leaf.get(), NID_subject_alt_name, "DNS:" + name) ||
      X509_sign(leaf.get(), key.get(), EVP_sha256()) == 0) {
    return OpensslError("certificate of " + name);
  }
  v1::Credentials credentials;
  credentials.set_ca_certificate(certificate_pem);
  DS_ASSIGN_OR_RETURN(*credentials.mutable_certificate(), CertificatePem(leaf.get()));
  DS_ASSIGN_OR_RETURN(*credentials.mutable_private_key(), KeyPem(leaf_key.get()));
  return credentials;
}

JobAuthority::JobAuthority(std::unique_ptr<Keys> keys) : keys_(std::move(keys)) {}
JobAuthority::JobAuthority(JobAuthority&&) noexcept = default;
JobAuthority& JobAuthority::operator=(JobAuthority&&) noexcept = default;
JobAuthority::~JobAuthority() = default;

CertificateDates DatesOfCertificates(std::int64_t now) {
  return {.not_before = 0, .not_after = std::max(now, kEarliestNow) + 10 * kYear};
}

StatusOr<JobAuthority> JobAuthority::Create(const std::string& job_id) {
  return Create(job_id, DatesOfCertificates(Clock::System().UnixNanos() / 1'000'000'000));
}

StatusOr<JobAuthority> JobAuthority::Create(const std::string& job_id,
                                            const CertificateDates& dates) {
  if (!IsPlainJobId(job_id)) {
    return InvalidArgumentError("job id '" + job_id +
                                "' must hold letters, digits, '-', '_' and '.' only");
  }
  auto keys = std::make_unique<Keys>();
  keys->job_id = job_id;
  keys->dates = dates;
  DS_RETURN_IF_ERROR(keys->MakeRoot());
  return JobAuthority(std::move(keys));
}

StatusOr<v1::Credentials> JobAuthority::IssueDaemon(int host_index,
                                                    std::optional<CertificateDates> dates) const {
  return keys_->Issue(v1::DaemonPeerName(keys_->job_id, host_index), "serverAuth", dates);
}

StatusOr<v1::Credentials> JobAuthority::IssueController(
    std::optional<CertificateDates> dates) const {
  return keys_->Issue(v1::ControllerPeerName(keys_->job_id), "clientAuth", dates);
}

}  // namespace ds::cli
