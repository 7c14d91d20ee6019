#include "cli/remote/place_daemon.h"

#include <cstdint>
#include <cstdlib>
#include <sstream>

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

class Placer {
 public:
  Placer(RemoteShell* shell, const DaemonBinary& binary, const std::string& unique)
      : shell_(shell), binary_(binary), unique_(unique) {}

  MaybeFailure Place(const std::string& where, std::string* path, Reason* reason) {
    std::string folder;
    if (MaybeFailure failure = MakeFolder(where, &folder, reason)) return failure;
    if (!reason->empty()) return std::nullopt;
    const std::string final_name = folder + "/dsrund-" + binary_.short_hash();
    const std::string temporary = final_name + "." + unique_;
    MaybeFailure failure = Send(temporary, reason);
    if (!failure && reason->empty()) failure = Finish(temporary, final_name, reason);
    if (!failure && !reason->empty()) {
      ScriptResult ignored;
      failure = shell_->Run({.text = kRemove, .arguments = {temporary}}, &ignored);
    }
    *path = final_name;
    return failure;
  }

 private:
  MaybeFailure MakeFolder(const std::string& where, std::string* folder, Reason* reason) {
    ScriptResult result;
    if (MaybeFailure failure =
            shell_->Run({.text = kMakeFolder, .arguments = {where, unique_}}, &result)) {
      return failure;
    }
    *reason = ReasonOf(result, "the folder cannot be made");
    if (!reason->empty()) return std::nullopt;
    std::istringstream lines(result.out);
    std::string free_kib;
    std::getline(lines, *folder);
    std::getline(lines, free_kib);
    const std::uint64_t free_bytes = std::strtoull(free_kib.c_str(), nullptr, 10) * 1024;
    if (!free_kib.empty() && free_bytes < binary_.bytes.size()) {
      *reason = *folder + ": no space left: " + std::to_string(free_bytes >> 20) + " MiB free, " +
                std::to_string((binary_.bytes.size() >> 20) + 1) + " needed";
    }
    return std::nullopt;
  }

  MaybeFailure Send(const std::string& temporary, Reason* reason) {
    ScriptResult result;
    if (MaybeFailure failure = shell_->Run(
            {.text = kReceive, .arguments = {temporary}, .input = binary_.bytes}, &result)) {
      return failure;
    }
    *reason = ReasonOf(result, temporary + ": the host did not take all of it");
    return std::nullopt;
  }

  MaybeFailure Finish(const std::string& temporary, const std::string& final_name, Reason* reason) {
    ScriptResult result;
    if (MaybeFailure failure = shell_->Run({.text = kFinish,
                                            .arguments = {temporary, final_name, binary_.sha256,
                                                          std::to_string(binary_.bytes.size())}},
                                           &result)) {
      return failure;
    }
    *reason = ReasonOf(result, final_name + ": cannot be made");
    return std::nullopt;
  }

  RemoteShell* const shell_;
  const DaemonBinary& binary_;
  const std::string unique_;
};

}  // namespace

MaybeFailure PlaceDaemon(RemoteShell* shell, const DaemonBinary& binary, const std::string& unique,
                         PlacedDaemon* placed) {
  Placer placer(shell, binary, unique);
  Reason at_home;
  if (MaybeFailure failure = placer.Place("home", &placed->path, &at_home)) return failure;
  if (at_home.empty()) return std::nullopt;
  Reason in_tmp;
  if (MaybeFailure failure = placer.Place("tmp", &placed->path, &in_tmp)) return failure;
  if (in_tmp.empty()) {
    placed->notice = at_home + "; dsrund was put to " + placed->path + " instead";
    return std::nullopt;
  }
  return HostFailure{.kind = FailureKind::kPlacing,
                     .message = at_home + "; nor in /tmp: " + in_tmp,
                     .hint = kHint};
}

}  // namespace ds::cli
