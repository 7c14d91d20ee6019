#include "cli/remote/remote_daemon.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <sstream>
#include <vector>

#include "cli/remote/libssh_connection.h"
#include "cli/remote/remote_shell.h"
#include "cli/remote/ssh_client.h"
#include "proto/message_line.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

// Enough for 20 MB on a slow link.
constexpr std::chrono::minutes kPlacingTimeout{10};
constexpr std::chrono::seconds kPortTimeout{10};

// Defines the shell function "sum FILE", which prints the file's SHA-256, followed by a blank and
// other text. openssl is preferred because it is faster: 25 ms for dsrund, 140 ms with coreutils.
constexpr char kSumFunction[] =
    R"sh(sum() { openssl dgst -sha256 -r <"$1" 2>/dev/null || sha256sum <"$1"; };)sh";

// Defines two shell functions: "started PID" prints the process's start time in ticks; "gone DIR"
// is true if the mark in the folder (runtime/base/owner_mark.h) names a process of this boot that
// has ended. These marks contain no inode, because shells have no portable means to read it, so a
// copy of a folder has a valid mark, too. Cleaning up therefore removes only dsrund and the mark,
// and no file that the user has put there.
constexpr char kMarkFunctions[] = R"sh(
boot=; { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null;
started() { l=; { read -r l <"/proc/$1/stat"; } 2>/dev/null; l="${l##*) }"; set -- $l;
case "$1" in ""|Z|X) ;; *) echo "${20}";; esac; };
gone() { m="$1/.dsrun-owner"; [ -f "$m" ] && [ ! -L "$m" ] && [ -O "$m" ] || return 1;
read -r b i w r <"$m" || return 1;
case "$i$w" in *[!0-9]*) return 1;; esac;
[ -n "$boot" ] && [ "$b" = "$boot" ] && [ -n "$w" ] && [ -z "$r" ] &&
[ "$(started "$i")" != "$w" ]; };)sh";

// The dsrund on a host. Its name contains the hash of its content, so that it is sent only once and
// several versions can coexist: $HOME/.cache/dsrun/dsrund-HASH. If the home is full or not
// writable, dsrund is placed in a new folder of the shared temporary directory, for one start.
//
// The bytes are sent on a command's standard input. This uses the full bandwidth and writes to a
// wrapper's own file system; SFTP in libssh 0.10 waits for a response after every piece. The file
// is written to a new folder with a random name and an owner mark, verified there, and then gets
// its final name, so a file with that name is complete. A correct file with that name is kept,
// because another host may be running it.
struct PlacedDaemon {
  std::string folder;
  bool once = false;   // the folder is for one start and is removed after it
  std::string notice;  // why dsrund is not in the home; "" = it is there
};

// Arguments: $2 "home" or "tmp", $3 the final name, $4 the SHA-256, $5 the size in KiB. Reads the
// bytes and prints the folder. Also removes old files: folders that broken connections have left,
// identified by their marks, at least a day later (a start takes minutes, and a shared home has
// marks from other pid namespaces); and versions older than 30 days, if their content has the hash
// that is in their name.
constexpr char kPlace[] = R"sh(
umask 077; t=; f=;
fail() { [ -z "$t" ] || { rm -f "$f" "$t/.dsrun-owner"; rmdir "$t"; }; echo "$1" >&2; exit 1; };
has() { [ -L "$1" ] && return 1; [ -f "$1" ] && [ -x "$1" ] && [ -O "$1" ] &&
h="$(sum "$1")" && [ "${h%% *}" = "$s" ]; };
s="$4"; p="${TMPDIR:-/tmp}";
if [ "$2" = home ]; then
p="$HOME/.cache/dsrun"; mkdir -p "$p" || exit 1;
[ -O "$p" ] || fail "$p: belongs to another user"; chmod 700 "$p" || fail "";
for o in "$p"/dsrund-????????????????; do
[ -f "$o" ] && [ ! -L "$o" ] && [ -n "$(find "$o" -mtime +30)" ] || continue;
case "$(sum "$o")" in "${o##*/dsrund-}"*) rm -f "$o";; esac; done; fi;
for o in "$p"/dsrun-once-*; do
[ ! -L "$o" ] && gone "$o" && [ -n "$(find "$o/.dsrun-owner" -mtime +0)" ] || continue;
rm -f "$o"/dsrund-* "$o/.dsrun-owner"; rmdir "$o"; done 2>/dev/null;
t="$(mktemp -d "$p/dsrun-once-XXXXXXXXXXXXXXXXXXXXXX")" || exit 1; f="$t/$3";
[ -z "$boot" ] || (set -C; echo "$boot $$ $(started $$)" >"$t/.dsrun-owner") || fail "";
k="$(df -Pk "$t" | awk "END { print \$4 }")";
[ "${k:-$5}" -ge "$5" ] ||
fail "$p: no space left: $((k / 1024)) MiB free, $(($5 / 1024 + 1)) needed";
cat >"$f" || fail "";
command -v openssl >/dev/null || command -v sha256sum >/dev/null ||
fail "the host has neither openssl nor sha256sum";
chmod 700 "$f"; [ -x "$f" ] || fail "$p: its file system forbids execution (noexec)";
has "$f" || fail "$f: the copy differs from the original";
[ "$2" = home ] || { echo "$t"; exit 0; };
if [ -d "$p/$3" ] && [ ! -L "$p/$3" ]; then
rmdir "$p/$3" || fail "$p/$3: a folder has the name of dsrund"; fi;
ln "$f" "$p/$3" 2>/dev/null || has "$p/$3" 2>/dev/null ||
mv -f "$f" "$p/$3" || fail "$p/$3: cannot be made";
rm -f "$f" "$t/.dsrun-owner"; rmdir "$t"; echo "$p")sh";

constexpr char kHint[] =
    "free space there, or make its home directory writable and its programs executable; dsrund "
    "needs "
    "about 20 MB, once";

// The folder of a placed dsrund, or the reason why it could not be placed there.
struct Attempt {
  std::string folder;
  std::string reason;
};

HostResult<Attempt> TryFolder(RemoteShell* shell, const DaemonBinary& binary,
                              const std::string& where) {
  const auto result = shell->Run({.text = std::string(kSumFunction) + kMarkFunctions + kPlace,
                                  .arguments = {where, binary.file_name(), binary.sha256,
                                                std::to_string((binary.bytes.size() >> 10) + 1)},
                                  .input = binary.bytes});
  if (!result.ok()) return result.failure();
  if (result->status == 0) return Attempt{.folder = TakeLastLine(result->out)};
  const std::string words = TakeLastLine(result->err);
  return Attempt{.reason = words.empty() ? "the folder cannot be made" : words};
}

HostResult<PlacedDaemon> PlaceDaemon(RemoteShell* shell, const DaemonBinary& binary) {
  const HostResult<Attempt> at_home = TryFolder(shell, binary, "home");
  if (!at_home.ok()) return at_home.failure();
  if (at_home->reason.empty()) return PlacedDaemon{.folder = at_home->folder};
  const HostResult<Attempt> in_tmp = TryFolder(shell, binary, "tmp");
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

constexpr char kUnfit[] = "dsrun-unfit ";

// Arguments: $2 the folder, $3 the name of dsrund there, $4 its SHA-256, $5 "once" for a folder to
// remove after the start, $6 the address to listen on, $7 the job, $8 dsrank or "".
//
// Verifies and executes the same open file, in a working directory that only this user can access.
// Other users who change the path to it, and programs of this user that change the file's name,
// therefore have no effect. Without /proc, dsrund is executed by its name in the folder. A shell
// that cannot open the file of a plain `exec` ends silently; with `command exec` it continues.
constexpr char kStart[] = R"sh(
unfit() { echo "dsrun-unfit $1"; exit 1; };
cd -P "$2" 2>/dev/null || unfit "its folder cannot be entered";
[ -O . ] || unfit "its folder is not this user's";
case "$(ls -ld .)" in drwx--[-S]---*) ;; *) unfit "its folder is open to others";; esac;
n="./$3"; [ -L "$n" ] && unfit "it is a symbolic link";
[ -f "$n" ] && [ -r "$n" ] || unfit "it is not a file of this user";
{ command exec 3<"$n"; } 2>/dev/null || unfit "it cannot be read";
if [ -e /proc/self/fd/3 ]; then f=/proc/self/fd/3; else f="$n"; fi;
[ -f "$f" ] && [ -O "$f" ] || unfit "it is not a file of this user";
h="$(sum "$f")"; [ "${h%% *}" = "$4" ] || unfit "its content differs from what was sent";
d="$2"; o="$5"; r="$8"; set -- --listen "$6" --job "$7";
[ -z "$r" ] || set -- "$@" --dsrank "$r";
if [ "$o" = once ]; then "$f" "$@"; s=$?; rm -f "$n" ./.dsrun-owner; rmdir "$d"; exit $s; fi;
exec "$f" "$@")sh";

// The settings that all attempts to start dsrund on a host share.
struct RemoteStart {
  std::string job_id;
  std::string line;  // a ListenRequest
  std::chrono::milliseconds timeout;
};

std::string MakeListenLine(const v1::Credentials& credentials, const RemoteJob& job) {
  v1::ListenRequest request;
  *request.mutable_credentials() = credentials;
  request.set_lease_seconds(std::chrono::duration<double>(job.lease).count());
  request.set_lease_decides(job.lease_decides);
  return v1::EncodeLine(request);
}

HostFailure StartFailure(const std::string& message) {
  return {
      .kind = FailureKind::kStart,
      .message = message,
      .hint = "can the host execute programs there, and is its C library as new as on this host?"};
}

// Fails with kPlacing if the file on the host is not the one that was sent.
HostResult<StartedDaemon> StartPlaced(RemoteShell* shell, const PlacedDaemon& placed,
                                      const DaemonBinary& binary, const RemoteFacts& facts,
                                      const RemoteStart& start) {
  const std::string path = placed.folder + "/" + binary.file_name();
  shell->connection().SetDeadline(std::chrono::steady_clock::now() + start.timeout);
  const RemoteShell::Script script{
      .text = std::string(kSumFunction) + kStart,
      .arguments = {placed.folder, binary.file_name(), binary.sha256, placed.once ? "once" : "",
                    facts.address, start.job_id, facts.dsrank},
      .input = start.line,
      .one_line_is_enough = true};
  const HostResult<RemoteShell::Result> result = shell->Run(script);
  if (!result.ok()) return result.failure();
  if (result->out.starts_with(kUnfit)) {
    return HostFailure{
        .kind = FailureKind::kPlacing,
        .message = path + ": " + TakeLastLine(result->out).substr(sizeof(kUnfit) - 1),
        .hint = "another process changes files there"};
  }
  if (result->out.empty()) {
    return StartFailure(path + " ended with status " + std::to_string(result->status) + ": " +
                        TakeLastLine(result->err));
  }
  HostResult<StartedDaemon> started = ParseListenResponse(result->out);
  if (started.ok()) {
    started->address = facts.address;
    started->notice = placed.notice;
  }
  return started;
}

// Starts the dsrund that the host has, or sends it first.
HostResult<StartedDaemon> FindOrPlace(RemoteShell* shell, const DaemonBinary& binary,
                                      const RemoteFacts& facts, const RemoteStart& start) {
  std::string replaced;
  if (!facts.folder.empty()) {
    HostResult<StartedDaemon> started =
        StartPlaced(shell, {.folder = facts.folder}, binary, facts, start);
    if (started.ok() || started.failure().kind != FailureKind::kPlacing) return started;
    replaced = started.failure().message + "; it was sent anew";
  }
  shell->connection().SetDeadline(std::chrono::steady_clock::now() + kPlacingTimeout);
  HostResult<PlacedDaemon> placed = PlaceDaemon(shell, binary);
  if (!placed.ok()) return placed.failure();
  if (placed->notice.empty()) placed->notice = replaced;
  return StartPlaced(shell, *placed, binary, facts, start);
}

// The hostfile's key must be readable. It may be on a file system that hangs.
HostOutcome CheckIdentity(const RemoteTarget& target, HostAttempt* attempt) {
  if (target.identity.empty()) return HostOutcome();
  attempt->Enter({"looking for the key " + target.identity, "does its file system hang?"});
  if (::access(target.identity.c_str(), R_OK) == 0) return HostOutcome();
  return HostFailure{
      .kind = FailureKind::kAuthentication,
      .message = ErrnoError(errno, "identity=" + target.identity).message(),
      .hint = "identity= in the hostfile must name a file that is readable on this machine"};
}

HostResult<std::unique_ptr<RemoteConnection>> Connect(const RemoteTarget& target,
                                                      const RemoteJob& job, HostAttempt* attempt) {
  const HostOutcome identity = CheckIdentity(target, attempt);
  if (!identity.ok()) return identity.failure();
  if (job.transport == SshTransport::kSshClient) {
    return SshClientConnection::Open(target, attempt);
  }
  return LibsshConnection::Open(target, job.host_keys.get(), attempt);
}

void AddNotice(const std::string& notice, StartedDaemon* started) {
  if (!notice.empty() && !started->notice.empty()) started->notice += "; ";
  started->notice += notice;
}

HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(RemoteConnection* connection,
                                                     const HostPort& daemon) {
  connection->SetDeadline(std::chrono::steady_clock::now() + kPortTimeout);
  return connection->OpenTunnel(daemon);
}

// Dials the daemon's port: a firewall may block it even if SSH's port is open. If the port cannot
// be reached, or SSH itself needed a proxy, opens a tunnel through SSH.
HostOutcome ReachPort(RemoteConnection* connection, HostAttempt* attempt, StartedDaemon* started) {
  const HostPort daemon{started->address, started->port};
  if (!connection->peer_address().empty()) {
    connection->SetDeadline(std::chrono::steady_clock::now() + kPortTimeout);
    const HostResult<UniqueFd> dialled = Dial(daemon, attempt->deadline(), attempt->interrupter());
    if (dialled.ok()) return HostOutcome();
    if (dialled.failure().kind == FailureKind::kInterrupted) return dialled.failure();
    AddNotice("its daemon is reached through SSH, because " + dialled.failure().message, started);
  }
  HostResult<std::unique_ptr<RemoteTunnel>> tunnel = OpenTunnel(connection, daemon);
  if (!tunnel.ok()) return tunnel.failure();
  started->tunnel = *std::move(tunnel);
  return HostOutcome();
}

}  // namespace

std::string StartedDaemon::target() const {
  if (tunnel != nullptr) return tunnel->target();
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "ipv6:[" + address + "]:" : "ipv4:" + address + ":") + std::to_string(port);
}

HostResult<StartedDaemon> ParseListenResponse(const std::string& printed) {
  v1::ListenResponse response;
  const bool understood = v1::DecodeLine(printed.substr(0, printed.find('\n')), &response);
  if (understood && !response.error().empty()) return StartFailure(response.error());
  constexpr std::uint32_t kLargestPid = std::numeric_limits<int>::max();
  if (!understood || response.port() < 1 || response.port() > 65535 || response.pid() < 1 ||
      response.pid() > kLargestPid) {
    return StartFailure("dsrund printed '" + printed.substr(0, 200) + "' instead of its port");
  }
  StartedDaemon started;
  started.port = static_cast<int>(response.port());
  started.pid = static_cast<int>(response.pid());
  started.version = response.daemon_version();
  return started;
}

HostResult<StartedDaemon> StartRemoteDaemon(const RemoteTarget& target,
                                            const v1::Credentials& credentials,
                                            const RemoteJob& job, HostAttempt* attempt) {
  const HostResult<std::unique_ptr<RemoteConnection>> connection = Connect(target, job, attempt);
  if (!connection.ok()) return connection.failure();
  RemoteShell shell(connection->get(), target.wrapper);
  attempt->Enter({"reading dsrund, which is installed with dsrun", "does its file system hang?"});
  const StatusOr<DaemonBinary>& binary = job.binary.get();
  if (!binary.ok()) return StartFailure(binary.status().message());
  attempt->Enter({.doing = "starting dsrund on the host"});
  const HostResult<RemoteFacts> facts = AskForFacts(&shell, *binary);
  if (!facts.ok()) return facts.failure();
  const RemoteStart start{
      .job_id = job.job_id, .line = MakeListenLine(credentials, job), .timeout = job.timeout};
  HostResult<StartedDaemon> started = FindOrPlace(&shell, *binary, *facts, start);
  if (!started.ok()) return started;
  AddNotice((*connection)->notice(), &*started);
  if (!shell.noise().empty()) {
    AddNotice("its login shell prints '" + Printable(shell.noise()) +
                  "' before the output of commands, which is skipped",
              &*started);
  }
  const HostOutcome port = ReachPort(connection->get(), attempt, &*started);
  if (!port.ok()) return port.failure();
  return started;
}

HostResult<std::unique_ptr<RemoteTunnel>> ReopenTunnel(const RemoteTarget& target,
                                                       const HostPort& daemon, const RemoteJob& job,
                                                       HostAttempt* attempt) {
  const HostResult<std::unique_ptr<RemoteConnection>> connection = Connect(target, job, attempt);
  if (!connection.ok()) return connection.failure();
  return OpenTunnel(connection->get(), daemon);
}

namespace {

constexpr char kLastLine[] = "dsrun-end";

// Arguments: $1 the connection, $2 dsrund's file name, $3 dsrank's path on this machine. Searches
// dsrank at $DSRUN_RANK, at the same path as on this machine, and in PATH.
constexpr char kScript[] = R"sh(
echo "$1"; echo "$(uname -sm)";
r="$DSRUN_RANK"; [ -x "$r" ] || r="$3"; [ -x "$r" ] || r="$(command -v dsrank)"; echo "$r";
d="$HOME/.cache/dsrun"; [ -x "$d/$2" ] || d=; echo "$d"; echo dsrun-end)sh";

std::string FirstLineOf(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns SERVER of "CLIENT PORT SERVER PORT".
std::string ServerOf(const std::string& connection) {
  std::istringstream words(connection);
  std::string client;
  std::string port;
  std::string server;
  words >> client >> port >> server;
  return server;
}

}  // namespace

HostResult<RemoteFacts> ParseFacts(const std::string& printed) {
  const std::vector<std::string> lines = LinesOf(printed);
  if (lines.size() != 5 || lines[4] != kLastLine) {
    return HostFailure{.kind = FailureKind::kStart,
                       .message = "the host's shell did not answer as expected: '" + printed + "'",
                       .hint = "does 'ssh HOST /bin/sh -c true' work?"};
  }
  return RemoteFacts{
      .address = ServerOf(lines[0]), .machine = lines[1], .dsrank = lines[2], .folder = lines[3]};
}

namespace {

// Explains why the script that asks for the facts has not begun.
HostFailure DescribeNoShell(const RemoteShell& shell, const RemoteShell::Result& result) {
  if (!result.out.empty()) {
    return {.kind = FailureKind::kShellNoise,
            .message = "the login shell ran no command and printed: '" +
                       Printable(FirstLineOf(result.out)) + "'",
            .hint = "may this user work there? user= in the hostfile names another"};
  }
  std::string runs = "/bin/sh";
  for (auto word = shell.wrapper().rbegin(); word != shell.wrapper().rend(); ++word) {
    runs = *word + " " + runs;
  }
  return {.kind = FailureKind::kStart,
          .message = "'" + runs + "' ended with status " + std::to_string(result.status) +
                     (result.err.empty() ? "" : ": " + FirstLineOf(result.err)),
          .hint = shell.wrapped() ? "is the target of exec= running on the host?"
                                  : "does 'ssh HOST /bin/sh -c true' work?"};
}

}  // namespace

HostResult<RemoteFacts> AskForFacts(RemoteShell* shell, const DaemonBinary& binary) {
  const HostResult<RemoteShell::Result> result =
      shell->Run({.text = kScript, .arguments = {binary.file_name(), binary.dsrank}});
  if (!result.ok()) return result.failure();
  if (!result->begun) return DescribeNoShell(*shell, *result);
  HostResult<RemoteFacts> facts = ParseFacts(result->out);
  if (!facts.ok()) return facts;
  if (facts->machine != binary.machine) {
    return HostFailure{
        .kind = FailureKind::kStart,
        .message = "the host is a " + facts->machine + ", this dsrund is for " + binary.machine,
        .hint = "all hosts of a job must be of one kind"};
  }
  // A wrapper may not pass $SSH_CONNECTION on. The dialled address is then used.
  if (facts->address.empty()) facts->address = shell->connection().peer_address();
  return facts;
}

}  // namespace ds::cli
