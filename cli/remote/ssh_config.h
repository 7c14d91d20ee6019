#pragma once

// SshConfig: an ssh_config that libssh reads as OpenSSH does.
//
// libssh looks for the file of a relative Include in the working directory, and goes on without it;
// OpenSSH looks beside the user's own configuration. And once libssh has read a HostName, it holds
// the Host lines that follow to that name, where OpenSSH goes on with the name the user gave. So
// the configuration is split into parts that are read one after the other. What it says about
// host keys libssh tells in part or not at all: those words are encoded, and read as those of
// other keywords.
//
// Threads: a plain value; the files it holds live as long as it does.

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class SshConfig {
 public:
  // The configuration at `path`, with all that it includes; `folder` is where relative names are
  // seen from. A file that is not there is an empty one, as for OpenSSH.
  static StatusOr<SshConfig> Read(const std::filesystem::path& path,
                                  const std::filesystem::path& folder);

  // Each part has every Host and Match line; what stands below them is in one part only. They are
  // read in this order.
  enum Part { kOptions, kKeys, kHostNames, kMatchHost, kMatchHostKeys, kPartCount };
  using Parts = std::array<std::string, kPartCount>;
  // Below "Match host ..." stands what is read last.
  static constexpr std::array<Part, 3> kForOptions = {kOptions, kHostNames, kMatchHost};
  // For the host keys: ProxyCommand is what stands behind StrictHostKeyChecking, UserKnownHostsFile
  // HostKeyAlias, GlobalKnownHostsFile RevokedHostKeys, Port 1 "HashKnownHosts yes".
  static constexpr std::array<Part, 3> kForKeys = {kKeys, kHostNames, kMatchHostKeys};

  // Returns the words behind the first three of these, and behind UserKnownHostsFile and
  // GlobalKnownHostsFile in kForOptions, as they stand in the configuration.
  static std::string Decode(std::string_view word);

  // The files for libssh to read: texts without relative names.
  const Parts& paths() const { return paths_; }

 private:
  // Makes the files of `text`, which stands below a "Match host" line when `below_match_host`.
  StatusOr<Parts> Add(const std::string& text, bool below_match_host, int depth);
  // Appends to `parts` the Include lines for the files that the patterns name.
  Status Include(std::string_view patterns, bool below_match_host, int depth, Parts* parts);

  std::filesystem::path folder_;
  Parts paths_;
  std::vector<UniqueFd> files_;
};

}  // namespace ds::cli
