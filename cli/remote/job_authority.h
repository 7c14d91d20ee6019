#pragma once

// JobAuthority: the certificate authority of one job, made by dsrun when the job has other hosts.
//
// Both ends of the channel prove with a certificate of this authority that they belong to the job
// and which end they are. Three things keep them apart: the authority itself (another job has
// another), the extended key usage (a daemon's certificate does for a server only, the controller's
// for a client only) and the name (proto/peer_name.h).
//
// Private keys exist in memory only: the authority's never leaves this object, a daemon's goes
// through SSH's standard input to its daemon, the controller's stays in this process.
//
// Validity: from 1970 to ten years from now. What makes a certificate worthless is the end of the
// process that holds its key, after hours or months; a date adds nothing to that, but a tight one
// would break jobs on hosts whose clock is wrong. One that was never set shows 1970 or 2000, which
// is inside. A host that is further off, or a certificate with a date that has passed, is refused
// by TLS, and by dsrund with a sentence when it is given such a certificate
// (daemon/network/check_credentials.h).
//
// Keys are EC P-256, signatures ECDSA with SHA-256.
// Threads: one at a time.

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
// The dates that certificates made at `now` get.
CertificateDates DatesOfCertificates(std::int64_t now);

class JobAuthority {
 public:
  // A job id holds letters, digits, '-', '_' and '.' (kInvalidArgument).
  static StatusOr<JobAuthority> Create(const std::string& job_id);
  static StatusOr<JobAuthority> Create(const std::string& job_id, const CertificateDates& dates);
  JobAuthority(JobAuthority&&) noexcept;
  JobAuthority& operator=(JobAuthority&&) noexcept;
  ~JobAuthority();

  // With the authority's dates, or others.
  StatusOr<v1::Credentials> IssueDaemon(int host_index,
                                        std::optional<CertificateDates> dates = {}) const;
  StatusOr<v1::Credentials> IssueController(std::optional<CertificateDates> dates = {}) const;

 private:
  struct Keys;  // OpenSSL's types stay out of here
  explicit JobAuthority(std::unique_ptr<Keys> keys);

  std::unique_ptr<Keys> keys_;
};

}  // namespace ds::cli
