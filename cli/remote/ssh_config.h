#pragma once

// SshConfig reads ssh_config for one host, as OpenSSH does: Host lines, Include, and Match lines
// with all, host, originalhost, user, localuser, exec, canonical and final. A Match with `final`
// makes it read the files twice. Only OpenSSH's client can interpret other criteria of Match, and
// CanonicalizeHostname, which looks names up: such a line is reported, and ReadSshSettings
// (read_ssh_settings.h) then asks `ssh -G`.
//
// libssh does not read the files: it continues without a relative Include, matches later Host lines
// against HostName, knows no `final`, and reports settings about host keys only in part.
//
// Not thread-safe.

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cli/remote/host_failure.h"
#include "cli/remote/ssh_settings.h"

namespace ds::cli {

class SshConfig {
 public:
  // A missing file is treated as empty, as by OpenSSH. A file that cannot be read is an error.
  struct File {
    std::filesystem::path path;
    std::filesystem::path folder;  // base folder of relative names in it
  };
  struct Query {
    std::string host;        // the name that the user gave
    std::string user;        // "" = from the configuration
    std::string local_user;  // who runs dsrun
    // Runs a command of Match exec. Returns whether it succeeded.
    std::function<HostResult<bool>(const std::string& command)> run;
  };
  struct Reading {
    SshSettings settings;
    // The first line that applies, or may apply, to the host and that only OpenSSH interprets:
    // "Match tagged fast"; "" = none. The settings are then incomplete.
    std::string beyond;
  };

  static HostResult<Reading> Read(std::span<const File> files, const Query& query);

 private:
  // The condition of lines: always, never, or unknown here.
  struct Condition {
    bool never = false;
    std::string beyond;  // the Match line with a criterion that only OpenSSH evaluates
  };

  explicit SshConfig(const Query* query) : query_(*query) {}

  HostOutcome ReadAll(std::span<const File> files);
  HostOutcome AddFile(const std::filesystem::path& path, const Condition& within, int depth);
  HostOutcome AddText(const std::string& text, const Condition& within, int depth);
  HostOutcome Include(std::string_view patterns, const Condition& condition, int depth);
  // Evaluate a Host or Match line within the condition `within`.
  Condition DecideHost(std::string_view patterns, const Condition& within) const;
  HostResult<Condition> DecideMatch(std::string_view criteria, const Condition& within);
  // Evaluates one criterion of Match; null = only OpenSSH can.
  struct Criterion {
    std::string name;
    std::string argument;
  };
  HostResult<std::optional<bool>> Holds(const Criterion& criterion);
  HostResult<std::optional<bool>> RunExec(const std::string& command);
  void AddLine(std::string_view keyword, std::string_view rest, const Condition& condition);

  std::string host_name() const;  // HostName so far, else the name that the user gave
  std::string user() const;

  const Query& query_;
  std::filesystem::path folder_;
  int files_read_ = 0;
  bool is_final_ = false;     // reads the files for the second time
  bool wants_final_ = false;  // has read "Match final"
  std::string final_name_;    // the name that Host lines mean when is_final_
  Reading reading_;
};

}  // namespace ds::cli
