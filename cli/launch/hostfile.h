#pragma once

// The hostfile lists the hosts that a job may use and the number of ranks on each.
//
//     # comment
//     worker-1 slots=8            # rack 1
//     worker-2 slots=4 port=2222 user=train workdir=/data
//     worker-3 slots=8 exec="docker exec -i training"
//
// Each line is one host: its name, "slots=N", then per-host keys. node[01-04] expands to four hosts
// with the same settings. A file that has only names, at least one repeated, has one line per
// slot. foreign_hostfile.h lists the formats of other launchers. Ranks follow the order of the
// lines. A '#' starts a comment at the start of a line or after a blank; blank lines, tabs, CRLF
// and a UTF-8 byte-order mark are allowed. A value with blanks is enclosed in double quotes. The
// value ends at the next double quote, without escapes, so it cannot contain one. Anything else is
// an error that names file and line: text after the number, an unknown key, a host listed twice.
//
// These keys configure access to a host: port, user, identity (a private key) and address.
// `address` is dialled instead of the name, and other hosts find this host there. Missing settings
// come from ~/.ssh/config. hostkey=SHA256:... is the fingerprint of the host's key, or several
// fingerprints separated by commas; known_hosts files are then ignored. workdir is the working
// directory of the ranks. exec is a command, words separated by blanks, that runs the daemon's
// command in the ranks' environment: in a container, for example. gpus names the devices of the
// slots, one per slot in order ("gpus=2,3", UUIDs); without it slot N has device N.
//
// Pure except ReadHostfile; safe from any thread.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// Upper limit of slots. No host has more cores or devices; a higher number is a typing error.
inline constexpr int kMaxSlotsPerHost = 4096;

struct HostEntry {
  std::string name;
  int slots = 0;
  // Keys: port, user, identity, workdir, exec, address, gpus, hostkey, spare (with an empty value).
  std::map<std::string, std::string> keys;
  int line = 0;  // 1-based

  friend bool operator==(const HostEntry&, const HostEntry&) = default;
};

// Splits the value of gpus=. Returns one device per slot, or none without the key.
std::vector<std::string> ListDevices(const HostEntry& entry);

// Splits the value of hostkey=; returns none without the key.
std::vector<std::string> ListHostKeys(const HostEntry& entry);

// Returns at least one host, or an error. `file_name` is for messages.
StatusOr<std::vector<HostEntry>> ParseHostfile(std::string_view text, std::string_view file_name);

// Returns kNotFound if the file does not exist: an explicitly named hostfile is required.
StatusOr<std::vector<HostEntry>> ReadHostfile(const std::filesystem::path& path);

}  // namespace ds::cli
