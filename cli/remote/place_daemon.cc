#include "cli/remote/place_daemon.h"

#include <cstdint>
#include <sstream>

#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

// $2 "home" or "tmp", $3 a name nobody else uses. Makes the folder and prints it and the KiB free
// there. What broken connections and forgotten versions have left there goes.
constexpr char kMakeFolder[] = R"sh(
umask 077;
case "$2" in home) d="$HOME/.cache/dsrun";; *) d="/tmp/dsrun-$(id -u)";; esac;
find "$d" -type f -name "dsrund-*.*" -mtime +0 -exec rm -f {} + 2>/dev/null;
find "$d" -type f -name "dsrund-*" -mtime +30 -exec rm -f {} + 2>/dev/null;
mkdir -p "$d" && [ -O "$d" ] && chmod 700 "$d" && : >"$d/.$3" && rm -f "$d/.$3" && echo "$d" &&
{ df -Pk "$d" | awk "END { print \$4 }"; true; })sh";

// $2 the temporary name, $3 the final one, $4 the SHA-256, $5 the size.
constexpr char kFinish[] = R"sh(
if command -v sha256sum >/dev/null 2>&1; then h="$(sha256sum <"$2")"; h="${h%% *}";
else h="$4"; [ "$(wc -c <"$2")" -eq "$5" ] || h=; fi;
if [ "$h" = "$4" ]; then chmod 700 "$2" && mv -f "$2" "$3";
else rm -f "$2"; echo "the copy differs from the original" >&2; false; fi)sh";

constexpr char kReceive[] = R"sh(umask 077; cat >"$2" || { rm -f "$2"; false; })sh";
constexpr char kRemove[] = R"sh(rm -f "$2")sh";

constexpr char kHint[] = "make room or a writable home there; dsrund needs about 20 MB, once";

// Why one of the two folders will not do; "" when all is well.
using Reason = std::string;

Reason ReasonOf(const ScriptResult& result, const std::string& otherwise) {
  if (result.status == 0) return "";
  const std::string words = LastLine(result.err);
  return words.empty() ? otherwise : words;
}

// A place for dsrund, or why this one will not do.
struct Attempt {
  std::string path;
  Reason reason;
};

class Placer {
 public:
  Placer(RemoteShell* shell, const DaemonBinary& binary, const std::string& unique)
      : shell_(shell), binary_(binary), unique_(unique) {}

  // `where` is "home" or "tmp".
  HostResult<Attempt> TryFolder(const std::string& where) {
    HostResult<Attempt> folder = MakeFolder(where);
    if (!folder.ok() || !folder->reason.empty()) return folder;
    const std::string final_name = folder->path + "/dsrund-" + binary_.short_hash();
    const std::string temporary = final_name + "." + unique_;
    HostResult<Reason> reason =
        RunStep({.text = kReceive, .arguments = {temporary}, .input = binary_.bytes},
                temporary + ": the host did not take all of it");
    if (reason.ok() && reason->empty()) {
      reason = RunStep({.text = kFinish,
                        .arguments = {temporary, final_name, binary_.sha256,
                                      std::to_string(binary_.bytes.size())}},
                       final_name + ": cannot be made");
    }
    if (!reason.ok()) return reason.failure();
    if (!reason->empty()) {
      const auto removed = shell_->Run({.text = kRemove, .arguments = {temporary}});
      if (!removed.ok()) return removed.failure();
    }
    return Attempt{final_name, *reason};
  }

 private:
  // Its path is the folder's.
  HostResult<Attempt> MakeFolder(const std::string& where) {
    const auto result = shell_->Run({.text = kMakeFolder, .arguments = {where, unique_}});
    if (!result.ok()) return result.failure();
    Attempt folder{.reason = ReasonOf(*result, "the folder cannot be made")};
    if (!folder.reason.empty()) return folder;
    std::istringstream lines(result->out);
    std::string free_kib;
    std::getline(lines, folder.path);
    std::getline(lines, free_kib);
    const std::uint64_t free_bytes = ParseNumber<std::uint64_t>(free_kib).value_or(0) * 1024;
    if (!free_kib.empty() && free_bytes < binary_.bytes.size()) {
      folder.reason = folder.path + ": no space left: " + std::to_string(free_bytes >> 20) +
                      " MiB free, " + std::to_string((binary_.bytes.size() >> 20) + 1) + " needed";
    }
    return folder;
  }

  HostResult<Reason> RunStep(const RemoteShell::Script& script, const std::string& otherwise) {
    const HostResult<ScriptResult> result = shell_->Run(script);
    if (!result.ok()) return result.failure();
    return ReasonOf(*result, otherwise);
  }

  RemoteShell* const shell_;
  const DaemonBinary& binary_;
  const std::string unique_;
};

}  // namespace

HostResult<PlacedDaemon> PlaceDaemon(RemoteShell* shell, const DaemonBinary& binary,
                                     const std::string& unique) {
  Placer placer(shell, binary, unique);
  const HostResult<Attempt> at_home = placer.TryFolder("home");
  if (!at_home.ok()) return at_home.failure();
  if (at_home->reason.empty()) return PlacedDaemon{.path = at_home->path};
  const HostResult<Attempt> in_tmp = placer.TryFolder("tmp");
  if (!in_tmp.ok()) return in_tmp.failure();
  if (in_tmp->reason.empty()) {
    return PlacedDaemon{
        .path = in_tmp->path,
        .notice = at_home->reason + "; dsrund was put to " + in_tmp->path + " instead"};
  }
  return HostFailure{.kind = FailureKind::kPlacing,
                     .message = at_home->reason + "; nor in /tmp: " + in_tmp->reason,
                     .hint = kHint};
}

}  // namespace ds::cli
