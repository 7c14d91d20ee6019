#include "cli/front/log_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/agent/agent_address.h"
#include "cli/front/agent_link.h"
#include "proto/agent.pb.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{256} << 10;

}  // namespace

Status LogReader::Read() {
  const UniqueFd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno == ENOENT ? OkStatus() : ErrnoError(errno, path_.string());
  std::string buffer(kBlockBytes, '\0');
  for (;;) {
    const ssize_t size =
        ::pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(offset_));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoError(errno, path_.string());
    if (size == 0) return OkStatus();
    offset_ += static_cast<std::uint64_t>(size);
    unfinished_.append(buffer.data(), static_cast<std::size_t>(size));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = unfinished_.find('\n', begin)) != std::string::npos;) {
      on_line_(unfinished_.substr(begin, end - begin));
      begin = end + 1;
    }
    unfinished_.erase(0, begin);
  }
}

Status LogReader::Finish() {
  DS_RETURN_IF_ERROR(Read());
  if (!unfinished_.empty()) on_line_(std::exchange(unfinished_, {}));
  return OkStatus();
}

// An event reaches a front after it has been written to the run folder.
Status FollowJob(const std::filesystem::path& run, const std::function<Status()>& read) {
  StatusOr<UniqueFd> connection = ConnectToAgent(run);
  if (connection.status().code() == StatusCode::kNotFound) return read();
  if (!connection.ok()) return connection.status();
  AgentLink link;
  v1::FrontHello hello;
  hello.set_shows_job(true);
  for (; connection.ok(); connection = AwaitNextAgent(run)) {
    link.Open(*std::move(connection));
    link.SendHello(hello);
    DS_RETURN_IF_ERROR(read());
    while (const std::optional<v1::FromAgent> message = link.Receive()) {
      if (message->has_ended()) return read();
      if (message->has_event()) DS_RETURN_IF_ERROR(read());
    }
  }
  return read();
}

}  // namespace ds::cli
