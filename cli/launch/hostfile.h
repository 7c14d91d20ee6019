#pragma once

// The hostfile: which hosts a job may use and how many ranks each takes.
//
//     # comment
//     worker-1 slots=8            # rack 1
//     worker-2 slots=4 port=2222 user=train workdir=/data
//     worker-3 slots=8 exec="docker exec -i training"
//
// Each line is one host: its name, "slots=N", then per-host keys. node[01-04] stands for four
// hosts, each with what follows. A file that has only names, one of them at least twice, has a line
// for each slot. foreign_hostfile.h lists what other launchers write. The order of the lines is the
// order of the ranks. A '#' starts a comment at the start of a line or after a blank; blank lines,
// tabs, CRLF and a UTF-8 byte-order mark are fine. A value that holds blanks stands in double
// quotes, which reach up to the next one: nothing inside is special, so it cannot hold a double
// quote itself. Anything else is an error that names file and line: text behind the number, an
// unknown key, a host listed twice.
//
// These keys say how a host is reached: port, user, identity (a private key), address (dialled
// instead of the name, and where the other hosts find this one); ~/.ssh/config is asked for what is
// missing. hostkey=SHA256:... is the fingerprint of the key that the host must show, or several
// with commas between them; no file is asked then. Where ranks start: workdir. exec is a command,
// its words separated by blanks, that runs the daemon's command where the ranks are to live: in a
// container, for example. gpus names the devices of the slots, one for each and in their order
// ("gpus=2,3", UUIDs); without it slot N has device N.
//
// Pure but for ReadHostfile; safe from any thread.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// More ranks than any host has cores or devices; above it a number is a typing error.
inline constexpr int kMaxSlotsPerHost = 4096;

struct HostEntry {
  std::string name;
  int slots = 0;
  // port, user, identity, workdir, exec, address, gpus, hostkey, spare (its value is empty).
  std::map<std::string, std::string> keys;
  int line = 0;  // 1-based

  friend bool operator==(const HostEntry&, const HostEntry&) = default;
};

// Splits what stands behind gpus=, as many as the entry has slots; none without the key.
std::vector<std::string> ListDevices(const HostEntry& entry);

// Splits what stands behind hostkey=; none without the key.
std::vector<std::string> ListHostKeys(const HostEntry& entry);

// Returns at least one host, or an error. `file_name` is for messages.
StatusOr<std::vector<HostEntry>> ParseHostfile(std::string_view text, std::string_view file_name);

// kNotFound when there is no such file: a hostfile that was named must exist.
StatusOr<std::vector<HostEntry>> ReadHostfile(const std::filesystem::path& path);

}  // namespace ds::cli
