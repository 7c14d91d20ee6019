#include "cli/daemon_client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

namespace ds::cli {
namespace {

// A stream is renewed when this has passed, so that one which died silently does not live for ever.
constexpr std::chrono::hours kWatchDeadline{1};

// Half of what the daemon sends ahead would do; a quarter keeps it from ever waiting for us.
constexpr std::size_t kAcknowledgeEveryBytes = 256 * 1024;

// The one place where gRPC's errors become ours; the codes are numerically equal.
Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

void SetTimeout(grpc::ClientContext* context, std::chrono::milliseconds timeout) {
  context->set_deadline(std::chrono::system_clock::now() + timeout);
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  // A proxy for unix sockets or a lookup of service configuration in DNS is never wanted.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

DaemonClient::DaemonClient(const std::string& target)
    : stub_(v1::Daemon::NewStub(MakeChannel(target))) {}

DaemonClient::~DaemonClient() = default;

StatusOr<v1::PrepareResponse> DaemonClient::Prepare(v1::PrepareRequest request,
                                                    std::chrono::milliseconds timeout) {
  request.set_protocol_version(v1::PROTOCOL_CURRENT);
  request.set_dsrun_version(DS_VERSION);
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  v1::PrepareResponse response;
  DS_RETURN_IF_ERROR(FromGrpc(stub_->Prepare(&context, request, &response)));
  return response;
}

StatusOr<v1::LaunchResponse> DaemonClient::Launch(const v1::LaunchRequest& request,
                                                  std::chrono::milliseconds timeout) {
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  v1::LaunchResponse response;
  DS_RETURN_IF_ERROR(FromGrpc(stub_->Launch(&context, request, &response)));
  return response;
}

StatusOr<v1::StopResponse> DaemonClient::Stop(const v1::StopRequest& request,
                                              std::chrono::milliseconds timeout) {
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  v1::StopResponse response;
  DS_RETURN_IF_ERROR(FromGrpc(stub_->Stop(&context, request, &response)));
  return response;
}

Status DaemonClient::Watch(const WatchOptions& options, const EventCallback& on_event) {
  {
    const std::lock_guard lock(mutex_);
    watching_ = true;
    watch_cancelled_ = false;
  }
  Position position{options.after_sequence, false};
  Status status;
  do {
    status = WatchOnce(options, on_event, &position);
  } while (!position.ended && status.code() == StatusCode::kDeadlineExceeded);
  const std::lock_guard lock(mutex_);
  watching_ = false;
  if (position.ended) return OkStatus();
  if (watch_cancelled_) return CancelledError("watching was cancelled");
  if (status.ok()) return UnavailableError("the daemon ended the event stream before the job");
  return status;
}

void DaemonClient::CancelWatch() {
  const std::lock_guard lock(mutex_);
  if (!watching_) return;
  watch_cancelled_ = true;
  if (watch_ != nullptr) watch_->TryCancel();
}

Status DaemonClient::WatchOnce(const WatchOptions& options, const EventCallback& on_event,
                               Position* position) {
  grpc::ClientContext context;
  SetTimeout(&context, kWatchDeadline);
  {
    const std::lock_guard lock(mutex_);
    if (watch_cancelled_) return CancelledError("watching was cancelled");
    watch_ = &context;
  }
  const auto stream = stub_->Watch(&context);
  v1::WatchRequest request;
  request.set_job_id(options.job_id);
  request.set_generation(options.generation);
  request.set_after_sequence(position->sequence);
  stream->Write(request);  // a failure shows in Read and Finish
  v1::EventBatch batch;
  std::size_t unacknowledged = 0;
  while (stream->Read(&batch)) {
    for (const v1::Event& event : batch.events()) {
      if (watch_cancelled_) break;
      on_event(event);
      position->sequence = event.sequence();
      position->ended = position->ended || event.has_job_ended();
    }
    unacknowledged += batch.ByteSizeLong();
    if (unacknowledged >= kAcknowledgeEveryBytes) {
      request.set_after_sequence(position->sequence);
      stream->Write(request);
      unacknowledged = 0;
    }
  }
  const Status status = FromGrpc(stream->Finish());
  const std::lock_guard lock(mutex_);
  watch_ = nullptr;
  return status;
}

}  // namespace ds::cli
