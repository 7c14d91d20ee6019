#include "cli/warm_daemon.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "proto/dsrun.pb.h"
#include "proto/warm_socket.h"
#include "runtime/base/cpu_topology.h"
#include "runtime/base/unix_socket.h"

namespace ds::cli {
namespace {

// A daemon that waits answers at once; one that has to be started first needs some milliseconds.
constexpr std::chrono::milliseconds kPatience{500};
constexpr std::size_t kMaxReplyBytes = 1024 * 1024;

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

}  // namespace

StatusOr<UniqueFd> OfferJob(const WarmJob& job) {
  if (const Status folder = CheckPrivateFolder(WarmFolder()); !folder.ok()) return folder;
  DS_ASSIGN_OR_RETURN(UniqueFd lifeline, ConnectUnix(WarmSocket()));
  DS_ASSIGN_OR_RETURN(const SocketPeer peer, PeerOf(lifeline.get()));
  if (peer.user != ::geteuid()) return PermissionDeniedError("another user serves here");
  DS_ASSIGN_OR_RETURN(v1::Handover request, DescribeThisProcess(job.dsrund));
  request.set_job_id(job.job_id);
  request.set_dsrank(job.dsrank.string());
  if (job.prepare.has_value()) *request.mutable_prepare() = *job.prepare;
  DS_RETURN_IF_ERROR(SendMessage(lifeline.get(), request.SerializeAsString(), kPatience,
                                 {job.connection, STDERR_FILENO}));
  return lifeline;
}

StatusOr<WarmDaemon> TakeWarmDaemon(UniqueFd offer) {
  DS_ASSIGN_OR_RETURN(const ReceivedMessage message,
                      ReceiveMessage(offer.get(), kMaxReplyBytes, kPatience));
  v1::HandoverReply reply;
  if (!reply.ParseFromString(message.bytes)) return InternalError("an answer that is none");
  if (!reply.refused().empty()) return FailedPreconditionError(reply.refused());
  WarmDaemon daemon{
      .lifeline = std::move(offer), .folder = reply.folder(), .pid = static_cast<int>(reply.pid())};
  if (reply.has_prepared()) daemon.prepared = std::move(*reply.mutable_prepared());
  return daemon;
}

}  // namespace ds::cli
