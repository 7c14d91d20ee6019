#pragma once

// SshConfig reads ssh_config for one host, in a form that makes libssh read it as OpenSSH would.
//
// libssh searches the file of a relative Include in the working directory and continues without it;
// OpenSSH searches it next to the user's configuration. After a HostName, libssh matches later Host
// lines against that name, where OpenSSH still matches the name that the user gave; libssh's "Match
// host" uses the given name, where OpenSSH uses the HostName. This class therefore reads the files
// itself and evaluates Host lines and the host criteria of Match lines; libssh receives the
// remaining lines, in order. libssh reports settings about host keys only in part or not at all:
// these are encoded and read back as values of other keywords.
//
// A Match with a criterion unknown to libssh ("final", "tagged", "localnetwork", ...) never
// matches, except for StrictHostKeyChecking, where it always matches.
//
// Thread-safe as a plain value. Its files exist as long as this object.

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class SshConfig {
 public:
  // A missing file is treated as empty, as by OpenSSH.
  struct File {
    std::filesystem::path path;
    std::filesystem::path folder;  // base folder of relative names in it
  };
  // Reads the configuration of `host`, the name that the user gave, from these files. The first
  // value of a keyword counts.
  static StatusOr<SshConfig> Read(std::span<const File> files, const std::string& host);

  // kKeys encodes settings about host keys: ProxyCommand holds StrictHostKeyChecking,
  // UserKnownHostsFile holds HostKeyAlias, GlobalKnownHostsFile holds RevokedHostKeys, and Port 1
  // means "HashKnownHosts yes".
  enum Part { kOptions, kKeys, kPartCount };
  const std::string& text(Part part) const { return texts_[part]; }
  // Returns the first Match line for this host that never matches here, but may match for OpenSSH,
  // and has lines below it: "Match final host gpu*"; "" = none. "Match final all" does not name the
  // host.
  const std::string& passed_over() const { return passed_over_; }
  // Returns the file for libssh to read.
  std::string path(Part part) const;

  // Decodes the values of the first three keywords of kKeys, and of UserKnownHostsFile and
  // GlobalKnownHostsFile in kOptions, to the text in the configuration; "" for a value from
  // elsewhere, such as a default of libssh.
  static std::string Decode(std::string_view word);

 private:
  // The condition of lines: always, never, or if libssh finds that `criteria` hold.
  struct Condition {
    bool never = false;
    bool unknown = false;  // has a criterion unknown to libssh
    std::string criteria;
    std::string line;  // the Match line, if it has a criterion about the host
  };

  explicit SshConfig(std::string host) : host_(std::move(host)), host_name_(host_) {}

  Status AddFile(const std::filesystem::path& path, const Condition& within, int depth);
  Status AddText(const std::string& text, const Condition& within, int depth);
  Status Include(std::string_view patterns, const Condition& condition, int depth);
  // Evaluate a Host or Match line within the condition `within`.
  Condition DecideHost(std::string_view patterns, const Condition& within) const;
  Condition DecideMatch(std::string_view criteria, const Condition& within) const;
  void AddLine(std::string_view keyword, std::string_view rest, const Condition& condition);
  void Append(Part part, const std::string& line, const Condition& condition);

  std::filesystem::path folder_;
  int files_read_ = 0;
  const std::string host_;
  std::string passed_over_;
  std::string host_name_;  // the first valid one, else the name that the user gave
  std::array<std::string, kPartCount> texts_;
  std::array<std::string, kPartCount> criteria_;  // in effect at the end of each text
  std::array<UniqueFd, kPartCount> fds_;
};

}  // namespace ds::cli
