#include "daemon/rpc_server.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

namespace ds::daemon {
namespace {

constexpr int kMaxRequestBytes = 64 * 1024 * 1024;  // a launch with every rank's environment
constexpr std::chrono::seconds kLastEventsGrace{1};

Status CheckFolder(const std::filesystem::path& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return ErrnoError(errno, folder.string());
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return PermissionDeniedError(folder.string() +
                                 ": the socket's folder must be yours alone (chmod 700)");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::filesystem::path& socket,
                                                      DaemonService* service) {
  DS_RETURN_IF_ERROR(CheckFolder(socket.parent_path()));
  grpc::ServerBuilder builder;
  int bound = 0;
  builder.AddListeningPort("unix:" + socket.string(), grpc::InsecureServerCredentials(), &bound);
  builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  // One controller calls: a completion queue and pollers per core would only cost memory.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || bound == 0) {
    return UnavailableError("cannot listen on " + socket.string());
  }
  if (::chmod(socket.c_str(), S_IRUSR | S_IWUSR) != 0) return ErrnoError(errno, socket.string());
  return std::unique_ptr<RpcServer>(new RpcServer(socket, service, std::move(server)));
}

void RpcServer::Drain() {
  // Not by Shutdown's own deadline: that also waits for the controller to close its connection,
  // which one that sits in no call does not notice it should.
  service_->AwaitWatchers(std::chrono::steady_clock::now() + kLastEventsGrace);
  std::error_code ignored;
  std::filesystem::remove(socket_, ignored);
}

RpcServer::~RpcServer() {
  Drain();
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace ds::daemon
