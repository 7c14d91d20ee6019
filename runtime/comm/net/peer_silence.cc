#include "runtime/comm/net/peer_silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace ds::comm {

void EndWhenSilent(int fd, std::chrono::seconds silence) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof(value));
  };
  constexpr int kProbes = 5;
  const int every = std::max(1, static_cast<int>(silence.count()) / (kProbes + 1));
  set(IPPROTO_TCP, TCP_KEEPIDLE, every);
  set(IPPROTO_TCP, TCP_KEEPINTVL, every);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::min(kProbes, static_cast<int>(silence.count())));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool IsSilent(int fd, std::chrono::seconds silence) {
  // Data sent just now, after a long pause, has not been retransmitted this often.
  constexpr int kSentAgain = 3;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_unacked > 0 && info.tcpi_backoff >= kSentAgain &&
         std::chrono::milliseconds(info.tcpi_last_ack_recv) >= silence;
}

}  // namespace ds::comm
