#include "daemon/network/rpc_server.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <utility>

namespace ds::daemon {
namespace {

constexpr int kMaxRequestBytes = 64 * 1024 * 1024;  // a launch with every rank's environment
constexpr int kMaxCallsPerConnection = 32;
constexpr std::chrono::milliseconds kLongestHandshake{10'000};
constexpr std::chrono::seconds kLastEventsGrace{1};
constexpr std::chrono::seconds kLastEventsGraceOnNetwork{5};

void SetUp(grpc::ServerBuilder* builder, DaemonService* service) {
  builder->RegisterService(service);
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  // One controller calls: a completion queue and pollers per core would only cost memory.
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
}

std::shared_ptr<grpc::ServerCredentials> MakeMutualTls(const v1::Credentials& credentials) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = credentials.ca_certificate();
  options.pem_key_cert_pairs.push_back({credentials.private_key(), credentials.certificate()});
  return grpc::SslServerCredentials(options);
}

// A dead connection is noticed within two thirds of the lease, a stranger's handshake ends in a
// third.
void SetDeadlines(grpc::ServerBuilder* builder, std::chrono::nanoseconds lease) {
  const auto third = std::chrono::duration_cast<std::chrono::milliseconds>(lease / 3);
  const int milliseconds = static_cast<int>(third.count());
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0 = as many as needed
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // the controller's are welcome
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(std::min(third, kLongestHandshake).count()));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
}

}  // namespace

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(DaemonService* service) {
  std::unique_ptr<RpcServer> server(new RpcServer(service));
  grpc::ServerBuilder builder;
  SetUp(&builder, service);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // pings, for what a socket pair is not
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return InternalError("gRPC does not start");
  return server;
}

void RpcServer::Serve(UniqueFd connection) {
  const int fd = connection.Release();  // gRPC closes it
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  grpc::AddInsecureChannelFromFd(server_.get(), fd);
}

StatusOr<std::unique_ptr<RpcServer>> RpcServer::StartOnNetwork(EventLoop* loop,
                                                               const NetworkOptions& options,
                                                               DaemonService* service) {
  std::unique_ptr<RpcServer> server(new RpcServer(service));
  DS_ASSIGN_OR_RETURN(std::unique_ptr<NetworkListener> listener,
                      NetworkListener::Bind(options.address));
  grpc::ServerBuilder builder;
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  server->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      Type::FROM_FD, MakeMutualTls(options.credentials));
  SetUp(&builder, service);
  SetDeadlines(&builder, options.lease);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return InternalError("gRPC does not accept the job's certificate");
  }
  service->ReportCallers([loop, listener = listener.get()](const std::string& peer) {
    loop->Post([listener, peer] { listener->OnCaller(peer); });
  });
  DS_RETURN_IF_ERROR(listener->Start(
      loop, options.controller_address,
      [acceptor = server->acceptor_.get(), fd = listener->fd()](UniqueFd connection) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
        parameters.listener_fd = fd;
        parameters.fd = connection.Release();
        acceptor->HandleNewConnection(&parameters);
      }));
  server->listener_ = std::move(listener);
  return server;
}

void RpcServer::Drain() {
  // Not by Shutdown's own deadline: that also waits for the controller to close its connection,
  // which one that sits in no call does not notice it should.
  service_->AwaitWatchers(std::chrono::steady_clock::now() +
                          (listener_ == nullptr ? kLastEventsGrace : kLastEventsGraceOnNetwork));
}

RpcServer::~RpcServer() {
  if (server_ == nullptr) return;
  Drain();
  listener_.reset();
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace ds::daemon
