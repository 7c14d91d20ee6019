#pragma once

// JobAuthority is the certificate authority of one job. dsrun creates it if the job has other
// hosts.
//
// Both ends of the channel prove with a certificate of this authority that they belong to the job,
// and which end they are. Three properties separate them: the authority (each job has its own), the
// extended key usage (a daemon's certificate is valid for a server only, the controller's for a
// client only) and the name (proto/peer_name.h).
//
// Private keys exist in memory only: the authority's never leaves this object, a daemon's is sent
// to it through SSH's standard input, and the controller's stays in this process.
//
// Certificates are valid from 1970 to ten years from now. A certificate becomes useless when the
// process that holds its key ends, after hours or months. A date adds no security, but a narrow
// range would break jobs on hosts with a wrong clock; a clock that was never set shows 1970 or
// 2000, which is in the range. TLS rejects a host whose clock is further off, and an expired
// certificate; dsrund rejects such a certificate with a message
// (daemon/network/check_credentials.h).
//
// Keys are EC P-256, signatures ECDSA with SHA-256. Not thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Seconds since 1970.
struct CertificateDates {
  std::int64_t not_before;
  std::int64_t not_after;
};
// Returns the dates of certificates that are created at `now`.
CertificateDates DatesOfCertificates(std::int64_t now);

class JobAuthority {
 public:
  // A job id consists of letters, digits, '-', '_' and '.' (kInvalidArgument).
  static StatusOr<JobAuthority> Create(const std::string& job_id);
  static StatusOr<JobAuthority> Create(const std::string& job_id, const CertificateDates& dates);
  JobAuthority(JobAuthority&&) noexcept;
  JobAuthority& operator=(JobAuthority&&) noexcept;
  ~JobAuthority();

  // Uses the authority's dates unless `dates` is given.
  StatusOr<v1::Credentials> IssueDaemon(int host_index,
                                        std::optional<CertificateDates> dates = {}) const;
  StatusOr<v1::Credentials> IssueController(std::optional<CertificateDates> dates = {}) const;

 private:
  struct Keys;  // hides OpenSSL's types
  explicit JobAuthority(std::unique_ptr<Keys> keys);

  std::unique_ptr<Keys> keys_;
};

}  // namespace ds::cli
