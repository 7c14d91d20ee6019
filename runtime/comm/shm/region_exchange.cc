#include "runtime/comm/shm/region_exchange.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace ds::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookEvery{2};
constexpr milliseconds kLookAroundEvery{100};

// Message of an arriving rank. Both ends are the same program on the same machine.
struct Arrival {
  std::int32_t rank;
  std::int32_t size;
  std::int32_t number;  // the rank's number in errors
  CallSignature purpose;
};

int NumberOf(const Rendezvous& rendezvous, int rank) {
  return rendezvous.names.empty() ? rank : rendezvous.names[static_cast<std::size_t>(rank)];
}
std::string NameOf(const Rendezvous& rendezvous, int rank) {
  return "rank " + std::to_string(NumberOf(rendezvous, rank));
}

struct Address {
  sockaddr_un name = {};
  socklen_t length = 0;
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// A leading zero byte makes the name abstract. Long names are truncated: callers put the
// distinguishing part first.
Address AbstractAddress(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.name.sun_path) - 1);
  std::memcpy(address.name.sun_path + 1, name.data(), length);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

milliseconds Left(steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  return std::max(milliseconds(0), left);
}

// Returns false after the deadline.
StatusOr<bool> BecomesReadable(const Rendezvous& rendezvous, const UniqueFd& fd,
                               steady_clock::time_point deadline) {
  pollfd readable = {.fd = fd.get(), .events = POLLIN, .revents = 0};
  while (true) {
    const milliseconds left = Left(deadline);
    const milliseconds wait = rendezvous.look_around ? std::min(left, kLookAroundEvery) : left;
    const int ready = poll(&readable, 1, static_cast<int>(wait.count()));
    if (ready == 1) return true;
    if (rendezvous.look_around) DS_RETURN_IF_ERROR(rendezvous.look_around());
    if (ready == 0 && Left(deadline) == milliseconds(0)) return false;
  }
}

bool IsOfThisUser(const UniqueFd& peer) {
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  return getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

union ControlBuffer {
  cmsghdr header;  // aligns the bytes
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

Status SendDescriptor(const UniqueFd& peer, int fd) {
  char payload = 0;
  iovec part = {.iov_base = &payload, .iov_len = 1};
  ControlBuffer control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  if (sendmsg(peer.get(), &message, MSG_NOSIGNAL) == 1) return OkStatus();
  return ErrnoError(errno, "handing over shared memory");
}

// Returns the descriptor, or an invalid one if the other end closed without sending any.
UniqueFd ReceiveDescriptor(const UniqueFd& peer) {
  char payload = 0;
  iovec part = {.iov_base = &payload, .iov_len = 1};
  ControlBuffer control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  if (recvmsg(peer.get(), &message, MSG_CMSG_CLOEXEC) != 1) return UniqueFd();
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return UniqueFd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return UniqueFd(fd);
}

// RegionHost: rank 0's side, which passes the region to every other rank, once each.
class RegionHost {
 public:
  RegionHost(const Rendezvous& rendezvous, const SharedRegion& region)
      : rendezvous_(rendezvous),
        region_(region),
        has_come_(static_cast<std::size_t>(rendezvous.self.size)),
        deadline_(steady_clock::now() + rendezvous.timeout) {}

  Status Listen() {
    listener_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const Address address = AbstractAddress(rendezvous_.name);
    if (!listener_.valid() || bind(listener_.get(), address.generic(), address.length) != 0 ||
        listen(listener_.get(), rendezvous_.self.size) != 0) {
      return ErrnoError(errno, "rank 0 cannot listen on the unix socket @" + rendezvous_.name);
    }
    return OkStatus();
  }

  Status ServeAll() {
    for (int served = 1; served < rendezvous_.self.size; ++served) DS_RETURN_IF_ERROR(ServeNext());
    return OkStatus();
  }

 private:
  Status ServeNext() {
    while (true) {
      DS_ASSIGN_OR_RETURN(const bool has_come, BecomesReadable(rendezvous_, listener_, deadline_));
      if (!has_come) {
        return UnavailableError(NameMissing() + " did not arrive within " +
                                std::to_string(rendezvous_.timeout.count() / 1000) + " s");
      }
      const UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Arrival who = {};
      // Ignore strangers, and ranks that ended during their introduction: wait for the next.
      if (!peer.valid() || !IsOfThisUser(peer)) continue;
      DS_ASSIGN_OR_RETURN(const bool says, BecomesReadable(rendezvous_, peer, deadline_));
      if (!says || recv(peer.get(), &who, sizeof(who), 0) != sizeof(who)) continue;
      DS_RETURN_IF_ERROR(Check(who));
      return SendDescriptor(peer, region_.fd().get());
    }
  }

  std::string NameMissing() const {
    std::string list;
    for (int rank = 1; rank < rendezvous_.self.size; ++rank) {
      if (has_come_[static_cast<std::size_t>(rank)]) continue;
      list += (list.empty() ? "" : ", ") + NameOf(rendezvous_, rank);
    }
    return list;
  }

  Status Check(const Arrival& who) {
    if (!(who.purpose == rendezvous_.purpose)) {
      return FailedPreconditionError("the ranks disagree: rank " + std::to_string(who.number) +
                                     " is in " + Describe(who.purpose) + ", " +
                                     NameOf(rendezvous_, 0) + " in " +
                                     Describe(rendezvous_.purpose));
    }
    if (who.size != rendezvous_.self.size || who.rank < 1 || who.rank >= who.size) {
      return FailedPreconditionError("a process joined as rank " + std::to_string(who.rank) +
                                     " of " + std::to_string(who.size) + " into a group of " +
                                     std::to_string(rendezvous_.self.size));
    }
    if (has_come_[static_cast<std::size_t>(who.rank)]) {
      return FailedPreconditionError("two processes joined as " + NameOf(rendezvous_, who.rank));
    }
    has_come_[static_cast<std::size_t>(who.rank)] = true;
    return OkStatus();
  }

  const Rendezvous& rendezvous_;
  const SharedRegion& region_;
  std::vector<bool> has_come_;
  steady_clock::time_point deadline_;
  UniqueFd listener_;
};

StatusOr<UniqueFd> ConnectToRankZero(const Rendezvous& rendezvous,
                                     steady_clock::time_point deadline) {
  const Address address = AbstractAddress(rendezvous.name);
  while (true) {
    UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return ErrnoError(errno, "making a unix socket");
    if (connect(fd.get(), address.generic(), address.length) == 0) return fd;
    if (errno != ECONNREFUSED && errno != EINTR) {
      return ErrnoError(errno, "connecting to the unix socket @" + rendezvous.name);
    }
    if (Left(deadline) == milliseconds(0)) {
      return UnavailableError(NameOf(rendezvous, 0) + " did not arrive within " +
                              std::to_string(rendezvous.timeout.count() / 1000) + " s");
    }
    if (rendezvous.look_around) DS_RETURN_IF_ERROR(rendezvous.look_around());
    poll(nullptr, 0, static_cast<int>(kLookEvery.count()));
  }
}

StatusOr<SharedRegion> AskForRegion(const Rendezvous& rendezvous, std::size_t bytes) {
  const auto deadline = steady_clock::now() + rendezvous.timeout;
  DS_ASSIGN_OR_RETURN(const UniqueFd peer, ConnectToRankZero(rendezvous, deadline));
  if (!IsOfThisUser(peer)) {
    return PermissionDeniedError("the unix socket @" + rendezvous.name +
                                 " belongs to another user");
  }
  const Arrival self = {.rank = rendezvous.self.rank,
                        .size = rendezvous.self.size,
                        .number = NumberOf(rendezvous, rendezvous.self.rank),
                        .purpose = rendezvous.purpose};
  UniqueFd region;
  if (send(peer.get(), &self, sizeof(self), MSG_NOSIGNAL) == sizeof(self)) {
    DS_ASSIGN_OR_RETURN(const bool answers, BecomesReadable(rendezvous, peer, deadline));
    if (answers) region = ReceiveDescriptor(peer);
  }
  if (!region.valid()) {
    return UnavailableError(NameOf(rendezvous, 0) +
                            " ended or refused before the group was formed");
  }
  return SharedRegion::Map(region, bytes);
}

}  // namespace

StatusOr<SharedRegion> ExchangeRegion(const Rendezvous& rendezvous, std::size_t bytes) {
  if (rendezvous.self.rank != 0) return AskForRegion(rendezvous, bytes);
  DS_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Create(bytes));
  RegionHost host(rendezvous, region);
  DS_RETURN_IF_ERROR(host.Listen());
  DS_RETURN_IF_ERROR(host.ServeAll());
  region.CloseDescriptor();
  return region;
}

}  // namespace ds::comm
