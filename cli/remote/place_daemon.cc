#include "cli/remote/place_daemon.h"

namespace ds::cli {
namespace {

// $2 "home" or "tmp", $3 the final name, $4 what makes a temporary one nobody else's, $5 the
// SHA-256, $6 the size in KiB. Reads the bytes and prints the folder. What broken connections and
// forgotten versions have left goes.
constexpr char kPlace[] = R"sh(
umask 077; t=;
fail() { echo "$1" >&2; rm -f "$f"; [ -z "$t" ] || rmdir "$t"; exit 1; };
has() { [ -L "$1" ] && return 1; [ -f "$1" ] && [ -x "$1" ] && [ -O "$1" ] &&
h="$(sum "$1")" && [ "${h%% *}" = "$s" ]; };
s="$5"; p="${TMPDIR:-/tmp}";
case "$2" in
home) d="$HOME/.cache/dsrun"; f="$d/$3.$4"; p="$d"; mkdir -p "$d" || exit 1;
[ -O "$d" ] || fail "$d: belongs to somebody else"; chmod 700 "$d" || fail "";
find "$d" -type f -name "dsrund-*.*" -mtime +0 -exec rm -f {} + 2>/dev/null;
find "$d" -type f -name "dsrund-*" -mtime +30 -exec rm -f {} + 2>/dev/null;;
*) find "$p" -maxdepth 1 -type d -user "$(id -u)" -name "dsrun-once-*" -mtime +0
-exec rm -rf {} + 2>/dev/null;
d="$(mktemp -d "$p/dsrun-once-XXXXXXXXXX")" || exit 1; t="$d"; f="$d/$3";;
esac;
k="$(df -Pk "$d" | awk "END { print \$4 }")";
[ "${k:-$6}" -ge "$6" ] ||
fail "$p: no space left: $((k / 1024)) MiB free, $(($6 / 1024 + 1)) needed";
cat >"$f" || fail "";
command -v openssl >/dev/null || command -v sha256sum >/dev/null ||
fail "the host has neither openssl nor sha256sum";
chmod 700 "$f"; has "$f" || fail "$f: the copy differs from the original";
if [ "$2" = home ]; then
if ln "$f" "$d/$3" 2>/dev/null || has "$d/$3" 2>/dev/null; then rm -f "$f";
else rm -rf "$d/$3"; mv -f "$f" "$d/$3" || fail "$d/$3: cannot be made"; fi; fi;
echo "$d")sh";

constexpr char kHint[] = "make room or a writable home there; dsrund needs about 20 MB, once";

// A place for dsrund, or why this one will not do.
struct Attempt {
  std::string folder;
  std::string reason;
};

HostResult<Attempt> TryFolder(RemoteShell* shell, const DaemonBinary& binary,
                              const std::string& unique, const std::string& where) {
  const auto result = shell->Run({.text = std::string(kSumFunction) + kPlace,
                                  .arguments = {where, binary.file_name(), unique, binary.sha256,
                                                std::to_string((binary.bytes.size() >> 10) + 1)},
                                  .input = binary.bytes});
  if (!result.ok()) return result.failure();
  if (result->status == 0) return Attempt{.folder = LastLine(result->out)};
  const std::string words = LastLine(result->err);
  return Attempt{.reason = words.empty() ? "the folder cannot be made" : words};
}

}  // namespace

HostResult<PlacedDaemon> PlaceDaemon(RemoteShell* shell, const DaemonBinary& binary,
                                     const std::string& unique) {
  const HostResult<Attempt> at_home = TryFolder(shell, binary, unique, "home");
  if (!at_home.ok()) return at_home.failure();
  if (at_home->reason.empty()) return PlacedDaemon{.folder = at_home->folder};
  const HostResult<Attempt> in_tmp = TryFolder(shell, binary, unique, "tmp");
  if (!in_tmp.ok()) return in_tmp.failure();
  if (in_tmp->reason.empty()) {
    return PlacedDaemon{.folder = in_tmp->folder,
                        .once = true,
                        .notice = at_home->reason + "; dsrund was put to " + in_tmp->folder +
                                  " instead, for this job only"};
  }
  return HostFailure{.kind = FailureKind::kPlacing,
                     .message = at_home->reason + "; nor elsewhere: " + in_tmp->reason,
                     .hint = kHint};
}

}  // namespace ds::cli
