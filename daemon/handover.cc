#include "daemon/handover.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "proto/warm_socket.h"
#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/process/unix_socket.h"

namespace ds::daemon {
namespace {

// A controller writes its request at once and reads the answer at once.
constexpr std::chrono::milliseconds kPatience{1000};

// What a child could not have another of than its parent, as the kernel tells it: that only the
// process itself could change ...
std::string FixedNature(const std::string& process) {
  std::string nature;
  for (const char* name : {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}) {
    std::array<char, 64> text{};
    const std::string link = process + "/ns/" + name;
    if (::readlink(link.c_str(), text.data(), text.size() - 1) > 0) nature += text.data();
    nature += '\n';
  }
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    for (const char* name : {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:",
                             "CapAmb:", "NoNewPrivs:", "Seccomp:"}) {
      if (line.starts_with(name)) nature += line + '\n';
    }
  }
  return nature;
}

// ... and that others can.
std::string GivenNature(const std::string& process) {
  std::string nature;
  for (const char* name : {"/cgroup", "/oom_score_adj"}) {
    std::ifstream file(process + name);
    nature.append(std::istreambuf_iterator<char>(file), {});
  }
  return nature;
}

struct Nature {
  std::string fixed;
  std::string given;
};

// "" or why this process, of the nature `own`, is not what the controller would have started.
std::string WhyNot(const v1::Handover& request, const SocketPeer& peer, const Nature& own) {
  if (peer.user != ::geteuid()) return "another user's";
  if (request.protocol_version() != v1::PROTOCOL_CURRENT) return "of another version";
  struct stat self {};
  if (::stat("/proc/self/exe", &self) != 0) return "without a file of its own";
  const v1::FileIdentity& wanted = request.dsrund();
  const std::int64_t modified = self.st_mtim.tv_sec * 1'000'000'000LL + self.st_mtim.tv_nsec;
  if (wanted.device() != self.st_dev || wanted.inode() != self.st_ino ||
      wanted.size() != static_cast<std::uint64_t>(self.st_size) ||
      wanted.modified_nanos() != modified) {
    return "another build of dsrund";
  }
  const std::string controller = "/proc/" + std::to_string(peer.pid);
  if (FixedNature(controller) != own.fixed || GivenNature(controller) != own.given) {
    return "in other groups, namespaces or control groups";
  }
  return "";
}

Status ApplyLimits(const v1::Handover& request) {
  for (const v1::ResourceLimit& limit : request.limits()) {
    const rlimit wanted{limit.soft(), limit.hard()};
    if (::setrlimit(static_cast<__rlimit_resource>(limit.resource()), &wanted) != 0) {
      return ErrnoError(errno, "resource limit " + std::to_string(limit.resource()));
    }
  }
  return OkStatus();
}

Status ApplyCpus(const v1::Handover& request) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const std::uint32_t cpu : request.cpus()) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);
  }
  if (::sched_setaffinity(0, sizeof(cpus), &cpus) != 0) return ErrnoError(errno, "cpus");
  return OkStatus();
}

// The thread that calls is the one whose children inherit it. What may fail comes first.
Status Apply(const v1::Handover& request, const UniqueFd& standard_error) {
  if (::chdir(request.working_directory().c_str()) != 0) {
    return ErrnoError(errno, request.working_directory());
  }
  if (::setpriority(PRIO_PROCESS, 0, request.niceness()) != 0) return ErrnoError(errno, "niceness");
  DS_RETURN_IF_ERROR(ApplyCpus(request));
  DS_RETURN_IF_ERROR(ApplyLimits(request));
  ::umask(static_cast<mode_t>(request.umask()));
  ::dup2(standard_error.get(), STDERR_FILENO);
  return OkStatus();
}

// What travels beside a request.
struct Inherited {
  UniqueFd connection;
  UniqueFd standard_error;
  std::optional<Claim> launch;
  std::optional<PortLease> port;
};

StatusOr<Inherited> SortDescriptors(const v1::Handover& request,
                                    std::vector<UniqueFd> descriptors) {
  const std::size_t least = request.has_launch() ? 3 : 2;
  const std::size_t most = request.has_launch() ? 4 : 2;
  if (descriptors.size() < least || descriptors.size() > most) {
    return InvalidArgumentError("a handover with other descriptors than it says");
  }
  Inherited inherited{.connection = std::move(descriptors[0]),
                      .standard_error = std::move(descriptors[1])};
  if (descriptors.size() > 2) inherited.launch.emplace(std::move(descriptors[2]));
  if (descriptors.size() > 3) {
    DS_ASSIGN_OR_RETURN(inherited.port, PortLease::Continue(std::move(descriptors[3])));
  }
  return inherited;
}

struct Accepted {
  v1::Handover request;
  Inherited inherited;
  UniqueFd process;
};

// The request, when this daemon is the right one and can be made like the controller's child.
StatusOr<Accepted> Accept(int lifeline, const Nature& own) {
  DS_ASSIGN_OR_RETURN(const SocketPeer peer, PeerOf(lifeline));
  DS_ASSIGN_OR_RETURN(ReceivedMessage message,
                      ReceiveMessage(lifeline, kMaxHandoverBytes, kPatience));
  v1::Handover request;
  if (!request.ParseFromString(message.bytes)) return InvalidArgumentError("no handover");
  DS_ASSIGN_OR_RETURN(Inherited inherited,
                      SortDescriptors(request, std::move(message.descriptors)));
  if (const std::string reason = WhyNot(request, peer, own); !reason.empty()) {
    return FailedPreconditionError("the waiting daemon is " + reason);
  }
  DS_RETURN_IF_ERROR(Apply(request, inherited.standard_error));
  return Accepted{std::move(request), std::move(inherited),
                  UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)))};
}

Status Reply(int lifeline, const v1::HandoverReply& reply) {
  return SendMessage(lifeline, reply.SerializeAsString(), kPatience);
}

StatusOr<UniqueFd> WatchBoth(const HandoverPlaces& places) {
  UniqueFd both(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event owner{.events = EPOLLIN, .data = {.fd = places.owner}};
  // A connection wakes one daemon of the pool: the others would only take the processors from it.
  epoll_event listener{.events = EPOLLIN | EPOLLEXCLUSIVE, .data = {.fd = places.listener}};
  if (!both.valid() || ::epoll_ctl(both.get(), EPOLL_CTL_ADD, places.owner, &owner) != 0 ||
      ::epoll_ctl(both.get(), EPOLL_CTL_ADD, places.listener, &listener) != 0) {
    return ErrnoError(errno, "epoll");
  }
  return both;
}

// A connection; nothing when another daemon of the pool was quicker.
StatusOr<std::optional<UniqueFd>> NextConnection(const UniqueFd& both,
                                                 const HandoverPlaces& places) {
  std::array<epoll_event, 2> events{};
  const int count = ::epoll_wait(both.get(), events.data(), events.size(), -1);
  if (count < 0 && errno != EINTR) return ErrnoError(errno, "epoll_wait");
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<std::size_t>(i)].data.fd == places.owner) {
      return CancelledError("the pool of waiting daemons has ended");
    }
  }
  UniqueFd connection(::accept4(places.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) return std::optional<UniqueFd>();
  return std::optional<UniqueFd>(std::move(connection));
}

}  // namespace

StatusOr<TakenJob> AwaitJob(const HandoverPlaces& places) {
  const std::string given_at_first = GivenNature("/proc/self");
  Nature own{.fixed = FixedNature("/proc/self"), .given = given_at_first};
  DS_ASSIGN_OR_RETURN(const UniqueFd both, WatchBoth(places));
  for (;;) {
    DS_ASSIGN_OR_RETURN(std::optional<UniqueFd> lifeline, NextConnection(both, places));
    if (!lifeline.has_value()) continue;
    own.given = GivenNature("/proc/self");
    StatusOr<Accepted> accepted = Accept(lifeline->get(), own);
    if (!accepted.ok()) {
      v1::HandoverReply reply;
      reply.set_refused(accepted.status().message());
      static_cast<void>(Reply(lifeline->get(), reply).ok());  // it may have gone
      // Some of it may have been applied: the next one must not inherit that.
      if (accepted.status().code() != StatusCode::kFailedPrecondition) return accepted.status();
      continue;
    }
    v1::Handover& request = accepted->request;
    Inherited& inherited = accepted->inherited;
    TakenJob job{.connection = std::move(inherited.connection),
                 .controller = *std::move(lifeline),
                 .process = std::move(accepted->process),
                 .job_id = request.job_id(),
                 .dsrank = request.dsrank(),
                 .environment = {request.environment().begin(), request.environment().end()},
                 .moved = own.given != given_at_first,
                 .port = std::move(inherited.port)};
    if (request.has_prepare()) job.prepare = std::move(*request.mutable_prepare());
    if (inherited.launch.has_value()) {
      job.launch.emplace(
          TakenJob::Launch{std::move(*request.mutable_launch()), *std::move(inherited.launch)});
    }
    return job;
  }
}

Status ConfirmJob(int controller, Confirmation confirmation) {
  v1::HandoverReply reply;
  reply.set_folder(confirmation.folder);
  reply.set_pid(static_cast<std::uint32_t>(::getpid()));
  if (confirmation.prepared.has_value()) *reply.mutable_prepared() = *confirmation.prepared;
  if (confirmation.launched.has_value()) *reply.mutable_launched() = *confirmation.launched;
  return Reply(controller, reply);
}

}  // namespace ds::daemon
