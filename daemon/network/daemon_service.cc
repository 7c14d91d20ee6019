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

#include "daemon/inspect/child_output.h"
#include "daemon/inspect/inspect_host.h"
#include "daemon/inspect/judge.h"
#include "daemon/inspect/python_facts.h"
#include "proto/grpc_threads.h"
#include "proto/set_up_grpc.h"
#include "runtime/base/log.h"
#include "runtime/process/load_program.h"
#include "runtime/process/thread_quota.h"

namespace ds::daemon {
namespace {

using WatchStream = grpc::ServerReaderWriter<v1::EventBatch, v1::WatchRequest>;

// The time limit of an Input call for a rank that does not read.
constexpr std::chrono::seconds kInputTimeout{1};
// Less does not tell a slow interpreter from a healthy one on a slow file system.
constexpr std::chrono::seconds kShortestQuestion{2};

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
  v1::SetUpGrpc<LogDebug>();
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

// Returns what a task of the worker waits for, or why there is no worker.
std::string DescribeWait(const Status& status, std::chrono::nanoseconds limit) {
  if (status.code() != StatusCode::kDeadlineExceeded) return status.message();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  return status.message() + " has not ended for " + std::to_string(seconds.count()) + " s";
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
  const auto begun = RunOnLoop(loop_, [&] { return supervisor_->BeginPrepare(*request); });
  if (!begun.ok()) return ToGrpc(begun.status());
  const auto left = context->deadline() - std::chrono::system_clock::now();
  const auto deadline = std::chrono::steady_clock::now() + left * 2 / 3;
  v1::PrepareResponse examined = ExamineInTime(*request, *begun, left * 2 / 3);
  if (request->describe_python()) DescribePythonInTime(*request, deadline, &examined);
  return Respond(
      RunOnLoop(loop_, [&] { return supervisor_->FinishPrepare(*request, std::move(examined)); }),
      response);
}

v1::PrepareResponse DaemonService::ExamineInTime(const v1::PrepareRequest& request,
                                                 const PreflightContext& context,
                                                 std::chrono::nanoseconds limit) {
  const auto examined = worker_.Run<v1::PrepareResponse>(
      [request, context](const Worker::TellStep& tell) {
        tell("reading dsrund into memory");  // before it has ranks to stop
        LoadProgram();
        return ExamineHost(request, context, tell);
      },
      std::chrono::steady_clock::now() + limit);
  if (examined.ok()) return *examined;
  v1::PrepareResponse response;
  *response.add_findings() = JudgeUnanswered(DescribeWait(examined.status(), limit));
  return response;
}

void DaemonService::DescribePythonInTime(const v1::PrepareRequest& request,
                                         Worker::Deadline deadline, v1::PrepareResponse* response) {
  // The examination has used the time up.
  if (deadline - std::chrono::steady_clock::now() < kShortestQuestion) return;
  auto python = worker_.Run<v1::Python>(
      [request, environment = supervisor_->environment(), deadline](const Worker::TellStep& tell) {
        tell("starting " + request.program() + " for its version");
        return DescribePython(request, environment, LimitPrograms(deadline));
      },
      deadline);
  if (!python.ok()) return;  // the examination has told of the file system that hangs
  if (!python->problem().empty()) *response->add_findings() = JudgePython(*python);
  *response->mutable_python() = *std::move(python);
}

StatusOr<std::vector<RankCommand>> DaemonService::MakeCommandsInTime(
    const v1::LaunchRequest& request, const HostContext& host, std::chrono::nanoseconds left) {
  const std::chrono::duration<double> start(request.start_seconds());
  const auto limit = request.start_seconds() > 0
                         ? std::chrono::duration_cast<std::chrono::nanoseconds>(start)
                         : left * 2 / 3;
  auto made = worker_.Run<StatusOr<std::vector<RankCommand>>>(
      [request, host](const Worker::TellStep& tell) {
        return MakeRankCommands(request, host, tell);
      },
      std::chrono::steady_clock::now() + std::min(limit, left));
  if (made.ok()) return *std::move(made);
  return FailedPreconditionError(DescribeWait(made.status(), limit));
}

grpc::Status DaemonService::Launch(grpc::ServerContext* context, const v1::LaunchRequest* request,
                                   v1::LaunchResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  const auto host = RunOnLoop(loop_, [&] { return supervisor_->BeginLaunch(*request); });
  if (!host.ok()) return ToGrpc(host.status());
  const auto left = context->deadline() - std::chrono::system_clock::now();
  auto commands = MakeCommandsInTime(*request, *host, left);
  return Respond(
      RunOnLoop(loop_, [&] { return supervisor_->FinishLaunch(*request, std::move(commands)); }),
      response);
}

grpc::Status DaemonService::Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                                 v1::StopResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  return Respond(RunOnLoop(loop_, [&] { return supervisor_->Stop(*request); }), response);
}

grpc::Status DaemonService::Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                                  v1::RenewResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  return Respond(supervisor_->Renew(*request), response);
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

grpc::Status DaemonService::Inspect(grpc::ServerContext* context, const v1::InspectRequest* request,
                                    v1::InspectResponse* response) {
  if (Status status = CheckCall(*context); !status.ok()) return ToGrpc(status);
  auto options = RunOnLoop(loop_, [&] { return supervisor_->BeginInspect(*request); });
  if (!options.ok()) return ToGrpc(options.status());
  const auto left = context->deadline() - std::chrono::system_clock::now();
  *response->mutable_facts() =
      InspectHost(*options, std::chrono::steady_clock::now() + left * 2 / 3);
  return grpc::Status::OK;
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
  auto watcher = (*log)->Open(request.after_sequence(), request.again());
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
        (*log)->AcknowledgeFor(*watcher, request.after_sequence());
        break;
      case EventLog::Next::kEnd:
        // The watcher closes the stream when it has all events. Ending it here first could cut the
        // connection while the last events are in flight.
        while (stream->Read(&request)) (*log)->AcknowledgeFor(*watcher, request.after_sequence());
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
  if (options.on_controller_gone) {
    listener->WatchCallers(options.lease / 4, options.on_controller_gone);
  }
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
