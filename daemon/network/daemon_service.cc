#include "daemon/network/daemon_service.h"

#include <fcntl.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/ranks/python_facts.h"
#include "proto/grpc_log.h"
#include "proto/grpc_threads.h"
#include "runtime/base/log.h"
#include "runtime/process/thread_quota.h"

namespace ds::daemon {
namespace {

using WatchStream = grpc::ServerReaderWriter<v1::EventBatch, v1::WatchRequest>;

// The time limit of an Input call for a rank that does not read.
constexpr std::chrono::seconds kInputTimeout{1};

// Converts a Status for the wire; the codes are numerically equal.
grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

template <typename Response>
grpc::Status Respond(StatusOr<Response> answer, Response* response) {
  if (!answer.ok()) return ToGrpc(answer.status());
  *response = std::move(answer).value();
  return grpc::Status::OK;
}

// Runs `work` on the loop's thread and returns its answer.
template <typename Work>
auto RunOnLoop(EventLoop* loop, Work work) -> decltype(work()) {
  using Answer = decltype(work());
  auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = promise->get_future();
  const bool posted = loop->Post([promise, &work] { promise->set_value(work()); });
  if (!posted) return UnavailableError("this daemon is ending");
  promise.reset();
  return answer.get();
}

// One thread for Watch, one for Input, which waits for its rank, and some for the other calls,
// which wait at most for the loop. The number is fixed and all are created at the start. A stop
// must not need a new thread on a host whose ranks have used up all processes.
constexpr int kCallThreads = 8;
constexpr int kMaxRequestBytes = 64 * 1024 * 1024;  // a launch with every rank's environment
constexpr int kMaxCallsPerConnection = 32;
constexpr std::chrono::milliseconds kLongestHandshake{10'000};
constexpr std::chrono::seconds kLastEventsGrace{1};
constexpr std::chrono::seconds kLastEventsGraceOnNetwork{5};

void SetUp(grpc::ServerBuilder* builder, DaemonService* service) {
  v1::SendGrpcLogTo<LogDebug>();
  builder->RegisterService(service);
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  // There is one caller, the controller; a completion queue per core would only use memory.
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, kCallThreads);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, kCallThreads);
  grpc::ResourceQuota quota("calls");
  quota.SetMaxThreads(kCallThreads);
  builder->SetResourceQuota(quota);
}

// Check before the first use of gRPC, which would otherwise block forever or abort without threads.
// The user's other processes may start some meanwhile, so there is a reserve.
Status CheckThreads() {
  constexpr int kSpare = 4;
  return CheckThreadQuota(v1::CountGrpcThreads() + kCallThreads + kSpare);
}

std::shared_ptr<grpc::ServerCredentials> MakeMutualTls(const v1::Credentials& credentials) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = credentials.ca_certificate();
  options.pem_key_cert_pairs.push_back({credentials.private_key(), credentials.certificate()});
  return grpc::SslServerCredentials(options);
}

// A dead connection is detected within two thirds of the lease. A handshake times out after a third
// at most.
void SetDeadlines(grpc::ServerBuilder* builder, std::chrono::nanoseconds lease) {
  const auto third = std::chrono::duration_cast<std::chrono::milliseconds>(lease / 3);
  const int milliseconds = static_cast<int>(third.count());
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0 = no limit
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);        // allows the controller's
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(std::min(third, kLongestHandshake).count()));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
}

}  // namespace

Status CheckCaller(const grpc::AuthContext& caller, const std::string& expected) {
  if (!caller.IsPeerAuthenticated()) {
    return Status(StatusCode::kUnauthenticated, "the caller has shown no certificate");
  }
  const std::vector<grpc::string_ref> names =
      caller.FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME);
  if (names.size() == 1 && names[0] == expected) return OkStatus();
  const std::string name = names.empty() ? "nobody" : std::string(names[0].data(), names[0].size());
  return PermissionDeniedError("only " + expected + " may call this daemon, not " + name);
}

Status DaemonService::CheckCall(const grpc::ServerContext& context) const {
  if (!caller_.empty()) DS_RETURN_IF_ERROR(CheckCaller(*context.auth_context(), caller_));
  if (on_caller_) on_caller_(context.peer());
  if (context.deadline() != std::chrono::system_clock::time_point::max()) return OkStatus();
  // The call would wait forever on a daemon that hangs.
  return InvalidArgumentError("every call needs a deadline, this one has none");
}

grpc::Status DaemonService::Prepare(grpc::ServerContext* context, const v1::PrepareRequest* request,
                                    v1::PrepareResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  auto answer = RunOnLoop(loop_, [&] { return supervisor_->Prepare(*request); });
  // Runs outside the loop, because it waits for the interpreter.
  if (answer.ok() && request->describe_python()) {
    auto python = DescribePython(*request, supervisor_->environment());
    if (python) *answer->mutable_python() = *std::move(python);
  }
  return Respond(std::move(answer), response);
}

grpc::Status DaemonService::Launch(grpc::ServerContext* context, const v1::LaunchRequest* request,
                                   v1::LaunchResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  return Respond(RunOnLoop(loop_, [&] { return supervisor_->Launch(*request); }), response);
}

grpc::Status DaemonService::Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                                 v1::StopResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  return Respond(RunOnLoop(loop_, [&] { return supervisor_->Stop(*request); }), response);
}

grpc::Status DaemonService::Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                                  v1::RenewResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  return Respond(RunOnLoop(loop_, [&] { return supervisor_->Renew(*request); }), response);
}

grpc::Status DaemonService::Signal(grpc::ServerContext* context, const v1::SignalRequest* request,
                                   v1::SignalResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  return Respond(RunOnLoop(loop_, [&] { return supervisor_->Signal(*request); }), response);
}

grpc::Status DaemonService::Share(grpc::ServerContext* context, const v1::ShareRequest* request,
                                  v1::ShareResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  return Respond(RunOnLoop(loop_, [&] { return supervisor_->Share(*request); }), response);
}

grpc::Status DaemonService::Input(grpc::ServerContext* context, const v1::InputRequest* request,
                                  v1::InputResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  const auto input = RunOnLoop(
      loop_, [&] { return supervisor_->FindInput(request->job_id(), request->generation()); });
  if (!input.ok()) return ToGrpc(input.status());
  // Runs outside the loop, because it waits for the rank.
  const auto deadline = std::chrono::steady_clock::now() + kInputTimeout;
  const auto accepted =
      (*input)->Write({request->offset(), request->data(), request->end()}, deadline);
  if (accepted.ok()) response->set_accepted(*accepted);
  return ToGrpc(accepted.status());
}

void DaemonService::AwaitWatchers(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  watcher_gone_.wait_until(lock, deadline, [this] { return watchers_ == 0; });
}

grpc::Status DaemonService::Watch(grpc::ServerContext* context, WatchStream* stream) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  v1::WatchRequest request;
  if (!stream->Read(&request)) {
    return ToGrpc(InvalidArgumentError("the first message of a watch must be its request"));
  }
  {
    const std::lock_guard lock(mutex_);
    ++watchers_;
  }
  grpc::Status status = ServeWatch(context, std::move(request), stream);
  {
    const std::lock_guard lock(mutex_);
    --watchers_;
  }
  watcher_gone_.notify_all();
  return status;
}

grpc::Status DaemonService::ServeWatch(grpc::ServerContext* context, v1::WatchRequest request,
                                       WatchStream* stream) {
  const auto log = RunOnLoop(
      loop_, [&] { return supervisor_->FindLog(request.job_id(), request.generation()); });
  if (!log.ok()) return ToGrpc(log.status());
  auto watcher = (*log)->Open(request.after_sequence());
  if (!watcher.ok()) return ToGrpc(watcher.status());
  // gRPC's deadline is in wall-clock time, which may be changed meanwhile.
  const auto deadline =
      std::chrono::steady_clock::now() + (context->deadline() - std::chrono::system_clock::now());
  v1::EventBatch batch;
  while (true) {
    switch ((*log)->Wait(&*watcher, deadline, &batch)) {
      case EventLog::Next::kBatch:
        if (!stream->Write(batch)) return ToGrpc(CancelledError("the watcher is gone"));
        break;
      case EventLog::Next::kAcknowledge:
        if (!stream->Read(&request)) return ToGrpc(CancelledError("the watcher is gone"));
        (*log)->Acknowledge(request.after_sequence());
        break;
      case EventLog::Next::kEnd:
        // The watcher closes the stream when it has all events. Ending it here first could cut the
        // connection while the last events are in flight.
        while (stream->Read(&request)) (*log)->Acknowledge(request.after_sequence());
        return grpc::Status::OK;
      case EventLog::Next::kSuperseded:
        return ToGrpc(Status(StatusCode::kAborted, "another watcher has taken over"));
      case EventLog::Next::kDeadline:
        return ToGrpc(DeadlineExceededError("the watch is to be renewed"));
    }
  }
}

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(DaemonService* service) {
  DS_RETURN_IF_ERROR(CheckThreads());
  std::unique_ptr<RpcServer> server(new RpcServer(service));
  grpc::ServerBuilder builder;
  SetUp(&builder, service);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // of no use on a socket pair
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
  DS_RETURN_IF_ERROR(CheckThreads());
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
      loop, [acceptor = server->acceptor_.get(), fd = listener->fd()](UniqueFd connection) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
        parameters.listener_fd = fd;
        parameters.fd = connection.Release();
        acceptor->HandleNewConnection(&parameters);
      }));
  // This end gives up a silent connection after a third of the lease (SetDeadlines); the kernel
  // uses the same limit.
  listener->WatchCallers(options.lease / 4, options.on_controller_gone);
  server->listener_ = std::move(listener);
  return server;
}

void RpcServer::Drain() {
  // Shutdown's own deadline is not suitable. It also waits until the controller closes its
  // connection, and a controller without an active call does not notice the shutdown.
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
