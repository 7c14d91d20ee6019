#pragma once

// The rank link carries messages between a rank and its daemon over an inherited socket pair.
//
// Format: one message per line,
//     dsrun1 <kind> <body>\n
// `kind` is one of the words below. `body` is one JSON object without raw newlines (the JSON
// grammar escapes them). "dsrun1" is the protocol's version. The daemon closes the link after a
// line with another version or an unknown kind; the rank keeps running. A line has at most
// kMaxLineBytes bytes, its newline included.
//
//     hello       {"pid":1}
//                 the first message of a rank
//     phase       {"name":"load the model","total_steps":100}
//                 the rank's current activity, and the job's number of steps once known
//     beacon      {"step":7,"memory":{"resident_bytes":1,...}}
//                 sent by each rank after every step as proof of progress
//     step        {...}
//                 sent by rank 0: one metrics.jsonl object per optimizer step
//     notice      {"text":"..."}
//                 a text for the user to read once
//     checkpoint  {"step":100,"path":"..."}
//                 a checkpoint has been committed
//     error       {"code":3,"message":"...","hint":"...","exit_code":2}
//                 the reason why this rank is about to end with status `exit_code`. `code` is a
//                 StatusCode. "absent":[1,3] is added when this rank has waited in vain for other
//                 ranks, and "absence" gives the reason: "late" (they did not arrive in time) or
//                 "unreachable" (nothing gets through to their host).
//     end         {"summary":{"steps":100}}
//                 the rank has finished its job; it exits with status 0 next
//     put         {"key":"ranks/0","value":"..."}
//                 publishes a text to all ranks of the job; the first value of a key is kept
//     get         {"key":"ranks/1"}
//                 requests the value of a key. The daemon replies once some rank has put it. A rank
//                 sends its next `get` only after the reply.
//
// The daemon replies to `get` with
//     value       {"key":"ranks/1","value":"..."}
//
// A program that never uses the link is a valid rank: the daemon also watches its process.
//
// Any thread may call Send; one thread may call Receive. The RankLink owns the descriptor named by
// DSRUN_LINK_FD after FromEnvironment.

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

// Limits the memory that a rank can make its daemon use for an unfinished line.
inline constexpr std::size_t kMaxLineBytes = 64 * 1024;
inline constexpr char kRankLinkVariable[] = "DSRUN_LINK_FD";
// `get` of this key returns the secret with which the ranks of a job on several hosts authenticate
// their connections, in hexadecimal digits. dsrun draws and puts it.
inline constexpr char kRankKeyName[] = "job/key";

enum class RankMessageKind {
  kHello,
  kPhase,
  kBeacon,
  kStep,
  kNotice,
  kCheckpoint,
  kError,
  kEnd,
  kPut,
  kGet,
  kValue,
};

std::string_view NameRankMessageKind(RankMessageKind kind);
std::optional<RankMessageKind> FindRankMessageKind(std::string_view name);

struct RankMessage {
  RankMessageKind kind = RankMessageKind::kHello;
  std::string body = "{}";  // JSON text, one line

  friend bool operator==(const RankMessage&, const RankMessage&) = default;
};

// Returns the line with its newline. Refuses a body with a raw newline and a line that would be too
// long.
StatusOr<std::string> EncodeRankMessage(const RankMessage& message);

// Parses one line without its newline. Does not parse the body's JSON.
StatusOr<RankMessage> DecodeRankMessage(std::string_view line);

// Splits a byte stream into messages. After an error the stream is unusable.
class RankMessageReader {
 public:
  void Feed(std::string_view bytes);
  // Returns the next complete message, nullopt if more bytes are needed, or the error that broke
  // the stream.
  StatusOr<std::optional<RankMessage>> Next();

 private:
  std::string buffer_;
  std::size_t begin_ = 0;  // of the bytes that Next has not returned yet
};

// The rank's end of the link.
class RankLink {
 public:
  explicit RankLink(UniqueFd fd) : fd_(std::move(fd)) {}

  // Returns the link named by DSRUN_LINK_FD, or null when the variable is unset (the rank was
  // started by hand, without dsrund). Removes the variable and makes the descriptor close-on-exec,
  // so that children do not inherit it.
  static StatusOr<std::unique_ptr<RankLink>> FromEnvironment();

  // Sends a message. Blocks while the socket is full. Fails with kUnavailable once the daemon is
  // gone.
  Status Send(const RankMessage& message);

  // Returns the next message from the daemon. Fails with kDeadlineExceeded after `timeout`, and
  // with kUnavailable once the daemon is gone.
  StatusOr<RankMessage> Receive(std::chrono::milliseconds timeout);

 private:
  UniqueFd fd_;
  std::mutex send_mutex_;
  RankMessageReader reader_;  // used by Receive only
};

}  // namespace ds
