#include "cli/remote/local_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "runtime/process/pipe.h"
#include "runtime/process/spawn_session.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

constexpr std::size_t kMaxCollected = std::size_t{1} << 20;

// Only the end that is read here is non-blocking; the process may block
// when it writes.
StatusOr<Pipe> MakeOutputPipe() {
  DS_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  if (::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  return pipe;
}

// Appends the available output. Closes the pipe at end-of-file.
void Gather(UniqueFd* pipe, std::string* text) {
  std::array<char, 16384> buffer;
  while (pipe->valid()) {
    const ssize_t got = ::read(pipe->get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return pipe->Reset();
    if (text->size() < kMaxCollected) text->append(buffer.data(), static_cast<std::size_t>(got));
  }
}

int MillisLeft(Interrupter::Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace

StatusOr<std::unique_ptr<LocalProcess>> LocalProcess::Start(std::vector<std::string> argv,
                                                            int socket) {
  std::unique_ptr<LocalProcess> process(new LocalProcess());
  DS_ASSIGN_OR_RETURN(SocketPair in, MakeSocketPair());
  DS_ASSIGN_OR_RETURN(Pipe out, MakeOutputPipe());
  DS_ASSIGN_OR_RETURN(Pipe err, MakeOutputPipe());
  const InheritedFd inherited[] = {{socket < 0 ? in.theirs.get() : socket, STDIN_FILENO},
                                   {socket < 0 ? out.write.get() : socket, STDOUT_FILENO},
                                   {err.write.get(), STDERR_FILENO}};
  const std::string program = argv.front();
  DS_ASSIGN_OR_RETURN(process->pid_, SpawnInNewSession(program, std::move(argv), inherited));
  process->in_ = std::move(in.ours);
  process->out_pipe_ = std::move(out.read);
  process->err_pipe_ = std::move(err.read);
  process->end_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, process->pid_, 0)));
  if (!process->end_.valid()) return ErrnoError(errno, "pidfd_open");
  return process;
}

StatusOr<std::unique_ptr<LocalProcess>> LocalProcess::StartSsh(
    const std::vector<std::string>& arguments, int socket) {
  std::vector<std::string> argv = {"/bin/sh", "-c", "exec ssh \"$@\"", "sh"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return Start(std::move(argv), socket);
}

LocalProcess::~LocalProcess() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);  // it has no state to save
  Reap();
}

void LocalProcess::Reap() {
  if (pid_ < 0) return;
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = ::waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  pid_ = -1;
}

void LocalProcess::Write(std::string_view* input) {
  const ssize_t sent = ::send(in_.get(), input->data(), input->size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return input->remove_prefix(static_cast<std::size_t>(sent));
  // The process no longer reads; its exit status will explain why.
  if (errno != EAGAIN && errno != EINTR) *input = {};
}

LocalProcess::End LocalProcess::Converse(const Talk& talk, const Limits& limits) {
  std::string_view input = talk.input;
  for (;;) {
    if (input.empty() && !talk.stay_open) in_.Reset();
    pollfd watched[] = {{end_.get(), POLLIN, 0},
                        {limits.interrupter->fd(), POLLIN, 0},
                        {out_pipe_.get(), POLLIN, 0},
                        {err_pipe_.get(), POLLIN, 0},
                        {input.empty() ? -1 : in_.get(), POLLOUT, 0}};
    const int count = ::poll(watched, std::size(watched), MillisLeft(limits.deadline));
    if (count < 0 && errno == EINTR) continue;
    Gather(&out_pipe_, &out_);
    Gather(&err_pipe_, &err_);
    if (talk.enough && talk.enough()) return End::kEnough;
    if (count <= 0) return End::kTimeout;
    if (watched[1].revents != 0) return End::kInterrupted;
    if (watched[4].revents != 0) Write(&input);
    if (watched[0].revents == 0) continue;
    // Collects output that arrived after the calls above.
    Gather(&out_pipe_, &out_);
    Gather(&err_pipe_, &err_);
    Reap();
    return talk.enough && talk.enough() ? End::kEnough : End::kExited;
  }
}

}  // namespace ds::cli
