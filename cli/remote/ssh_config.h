#pragma once

// SshConfig: what ssh_config says of one host, for libssh to read as OpenSSH would.
//
// libssh looks for the file of a relative Include in the working directory, and goes on without it;
// OpenSSH looks beside the user's own configuration. Once libssh has read a HostName, it holds the
// Host lines that follow to that name, where OpenSSH goes on with the name the user gave, and its
// "Match host" takes that name where OpenSSH takes the HostName. So files are read here, and Host
// lines and what Match lines say of hosts decided here; libssh gets the lines that are left, in
// their order. What the configuration says about host keys libssh tells in part or not at all:
// those words are encoded, and read as those of other keywords.
//
// A Match with a criterion that libssh does not know ("final", "tagged", "localnetwork", ...) never
// matches, but for StrictHostKeyChecking: there it always does.
//
// Threads: a plain value; the files it holds live as long as it does.

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
  // One that is not there is an empty one, as for OpenSSH.
  struct File {
    std::filesystem::path path;
    std::filesystem::path folder;  // where relative names in it are seen from
  };
  // The configuration of `host`, the name the user gave, in these files: the first value counts.
  static StatusOr<SshConfig> Read(std::span<const File> files, const std::string& host);

  // kKeys is for the host keys: ProxyCommand is what stands behind StrictHostKeyChecking,
  // UserKnownHostsFile HostKeyAlias, GlobalKnownHostsFile RevokedHostKeys, Port 1 "HashKnownHosts
  // yes".
  enum Part { kOptions, kKeys, kPartCount };
  const std::string& text(Part part) const { return texts_[part]; }
  // The first Match line for this host that never matches here, but may for OpenSSH, and has lines
  // below it: "Match final host gpu*"; "" without one. "Match final all" says nothing of the host.
  const std::string& passed_over() const { return passed_over_; }
  // The file for libssh to read.
  std::string path(Part part) const;

  // Returns the words behind the first three of these, and behind UserKnownHostsFile and
  // GlobalKnownHostsFile in kOptions, as they stand in the configuration; "" for a word that is not
  // from there, such as a default of libssh.
  static std::string Decode(std::string_view word);

 private:
  // Says when lines count: always, never, or when libssh finds that `criteria` hold.
  struct Condition {
    bool never = false;
    bool unknown = false;  // there is a criterion that libssh does not know
    std::string criteria;
    std::string line;  // of Match, when something in it is about the host
  };

  explicit SshConfig(std::string host) : host_(std::move(host)), host_name_(host_) {}

  Status AddFile(const std::filesystem::path& path, const Condition& within, int depth);
  Status AddText(const std::string& text, const Condition& within, int depth);
  Status Include(std::string_view patterns, const Condition& condition, int depth);
  // Read a Host or Match line, below lines that have the condition `within`.
  Condition DecideHost(std::string_view patterns, const Condition& within) const;
  Condition DecideMatch(std::string_view criteria, const Condition& within) const;
  void AddLine(std::string_view keyword, std::string_view rest, const Condition& condition);
  void Append(Part part, const std::string& line, const Condition& condition);

  std::filesystem::path folder_;
  int files_read_ = 0;
  const std::string host_;
  std::string passed_over_;
  std::string host_name_;  // the first that counts, else what the user gave
  std::array<std::string, kPartCount> texts_;
  std::array<std::string, kPartCount> criteria_;  // that hold at the end of each text
  std::array<UniqueFd, kPartCount> fds_;
};

}  // namespace ds::cli
