#include "cli/host/warm_daemon.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "proto/dsrun.pb.h"
#include "proto/warm_socket.h"
#include "runtime/base/log.h"
#include "runtime/process/cpu_topology.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

// A daemon that waits answers at once; one that has to be started first needs some milliseconds.
constexpr std::chrono::milliseconds kPatience{500};
// One that starts ranks answers when all have been started, however busy the host.
constexpr std::chrono::seconds kLaunchPatience{30};
constexpr std::size_t kMaxReplyBytes = 1024 * 1024;
// What many ranks with long command lines need is sent by a call, whose size is not bounded so.
constexpr std::size_t kMaxLaunchBytes = kMaxHandoverBytes / 4;

Status AddIdentity(const std::filesystem::path& dsrund, v1::FileIdentity* identity) {
  struct stat info {};
  if (::stat(dsrund.c_str(), &info) != 0) return ErrnoError(errno, dsrund.string());
  identity->set_device(info.st_dev);
  identity->set_inode(info.st_ino);
  identity->set_size(static_cast<std::uint64_t>(info.st_size));
  identity->set_modified_nanos(info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec);
  return OkStatus();
}

void AddLimits(v1::Handover* request) {
  for (int resource = 0; resource < static_cast<int>(RLIMIT_NLIMITS); ++resource) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) continue;
    v1::ResourceLimit* added = request->add_limits();
    added->set_resource(static_cast<std::uint32_t>(resource));
    added->set_soft(limit.rlim_cur);
    added->set_hard(limit.rlim_max);
  }
}

// umask(2) can only be asked by setting it; nothing else of this process makes files just now.
unsigned OwnUmask() {
  const mode_t mask = ::umask(S_IRWXG | S_IRWXO);
  ::umask(mask);
  return mask;
}

StatusOr<v1::Handover> DescribeThisProcess(const std::filesystem::path& dsrund) {
  v1::Handover request;
  request.set_protocol_version(v1::PROTOCOL_CURRENT);
  DS_RETURN_IF_ERROR(AddIdentity(dsrund, request.mutable_dsrund()));
  for (char** entry = environ; *entry != nullptr; ++entry) request.add_environment(*entry);
  std::error_code error;
  request.set_working_directory(std::filesystem::current_path(error).string());
  if (error) return ErrnoError(error.value(), "working directory");
  request.set_umask(OwnUmask());
  AddLimits(&request);
  for (const int cpu : AllowedCpus()) request.add_cpus(static_cast<std::uint32_t>(cpu));
  request.set_niceness(::getpriority(PRIO_PROCESS, 0));
  return request;
}

// What is asked along with the job; the descriptors that go with it are the offer's or the
// opening's.
Status AddOpening(const JobOpening& opening, v1::Handover* request, WarmOffer* offer,
                  std::vector<int>* descriptors) {
  *request->mutable_prepare() = opening.prepare;
  if (!opening.launch.has_value() || opening.launch->ByteSizeLong() > kMaxLaunchBytes) {
    return OkStatus();
  }
  *request->mutable_launch() = *opening.launch;
  DS_ASSIGN_OR_RETURN(offer->launch, Claim::Create());
  descriptors->push_back(offer->launch->fd());
  if (opening.port.has_value()) descriptors->push_back(opening.port->fd());
  return OkStatus();
}

StatusOr<v1::HandoverReply> ReceiveReply(const UniqueFd& lifeline,
                                         std::chrono::milliseconds patience) {
  DS_ASSIGN_OR_RETURN(const ReceivedMessage message,
                      ReceiveMessage(lifeline.get(), kMaxReplyBytes, patience));
  v1::HandoverReply reply;
  if (!reply.ParseFromString(message.bytes)) return InternalError("an answer that is none");
  return reply;
}

}  // namespace

StatusOr<WarmOffer> OfferJob(const WarmJob& job) {
  if (const Status folder = CheckPrivateFolder(WarmFolder()); !folder.ok()) return folder;
  WarmOffer offer;
  DS_ASSIGN_OR_RETURN(offer.lifeline, ConnectUnix(WarmSocket()));
  DS_ASSIGN_OR_RETURN(const SocketPeer peer, PeerOf(offer.lifeline.get()));
  if (peer.user != ::geteuid()) return PermissionDeniedError("another user serves here");
  DS_ASSIGN_OR_RETURN(v1::Handover request, DescribeThisProcess(job.dsrund));
  request.set_job_id(job.job_id);
  request.set_dsrank(job.dsrank.string());
  std::vector<int> descriptors = {job.connection, STDERR_FILENO};
  if (job.opening != nullptr) {
    DS_RETURN_IF_ERROR(AddOpening(*job.opening, &request, &offer, &descriptors));
  }
  DS_RETURN_IF_ERROR(
      SendMessage(offer.lifeline.get(), request.SerializeAsString(), kPatience, descriptors));
  return offer;
}

StatusOr<std::optional<WarmDaemon>> TakeWarmDaemon(WarmOffer offer) {
  StatusOr<v1::HandoverReply> reply = ReceiveReply(offer.lifeline, kPatience);
  if (!reply.ok() && offer.launch.has_value() && !offer.launch->Take()) {
    // It starts the ranks, or has: another daemon would start them twice.
    if (reply.status().code() == StatusCode::kDeadlineExceeded) {
      reply = ReceiveReply(offer.lifeline, kLaunchPatience);
    }
    if (!reply.ok()) {
      return UnavailableError("the waiting daemon was starting the ranks, and then " +
                              reply.status().message());
    }
  }
  const std::string refused = reply.ok() ? reply->refused() : reply.status().message();
  if (!refused.empty()) {
    LogDebug("starting a daemon: " + refused);
    return std::optional<WarmDaemon>();
  }
  std::optional<WarmDaemon> daemon;
  daemon.emplace(WarmDaemon{.lifeline = std::move(offer.lifeline),
                            .folder = reply->folder(),
                            .pid = static_cast<int>(reply->pid())});
  if (reply->has_prepared()) daemon->prepared = std::move(*reply->mutable_prepared());
  if (reply->has_launched()) daemon->launched = std::move(*reply->mutable_launched());
  return daemon;
}

}  // namespace ds::cli
