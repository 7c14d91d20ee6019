#pragma once

// The rank link: what a rank says to its daemon, and is answered, over an inherited socket pair.
//
// Format: one message per line,
//     dsrun1 <kind> <body>\n
// where kind is one of the words below and body is one JSON object without raw newlines (the JSON
// grammar escapes them). "dsrun1" is the version: an unknown version or kind ends the link, never
// guesses. A line is at most kMaxLineBytes, its newline included.
//
//     hello       {"pid":1}
//                 its first message
//     phase       {"name":"load the model","total_steps":100}
//                 what it is busy with, and how many steps the job has once it knows
//     beacon      {"step":7,"memory":{"resident_bytes":1,...}}
//                 each rank after every step: proof of progress
//     step        {...}
//                 rank 0: one metrics.jsonl object per optimizer step
//     notice      {"text":"..."}
//                 something the user should read once
//     checkpoint  {"step":100,"path":"..."}
//                 a checkpoint has been committed
//     error       {"code":3,"message":"...","hint":"...","exit_code":2}
//                 why this rank is about to end; with "absent":[1,3] when these ranks are alive and
//                 "absence" is "late" (they did not come in time) or "unreachable"
//     end         {"summary":{"steps":100}}
//                 the job is done; exit status 0 follows
//     put         {"key":"ranks/0","value":"..."}
//                 a text for all ranks of the job; the first of a key stays
//     get         {"key":"ranks/1"}
//                 asks for one: the answer comes when somebody has put it. One at a time.
//
// and back, when it has asked,
//     value       {"key":"ranks/1","value":"..."}
//
// A rank that never uses the link is fine: it is watched from outside.
//
// Threads: Send may be called from any thread; Receive from one.
// Lifetimes: the descriptor named by DSRUN_LINK_FD belongs to the RankLink after FromEnvironment.

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

inline constexpr std::size_t kMaxLineBytes = 64 * 1024;
inline constexpr char kRankLinkVariable[] = "DSRUN_LINK_FD";
// Under this name `get` finds the key of the job's ranks, in hexadecimal digits; dsrun puts it in
// jobs on several hosts.
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

// The line with its newline. Refuses a body with a raw newline or a line that would be too long.
StatusOr<std::string> EncodeRankMessage(const RankMessage& message);

// Parses one line without its newline. The body's JSON is not looked into.
StatusOr<RankMessage> DecodeRankMessage(std::string_view line);

// Cuts a byte stream into messages. After an error the stream is unusable.
class RankMessageReader {
 public:
  void Feed(std::string_view bytes);
  // The next whole message, nothing yet, or why the stream is broken.
  StatusOr<std::optional<RankMessage>> Next();

 private:
  std::string buffer_;
  std::size_t begin_ = 0;  // of what Next has not given away
};

// The rank's end.
class RankLink {
 public:
  explicit RankLink(UniqueFd fd) : fd_(std::move(fd)) {}

  // The link named by DSRUN_LINK_FD; null when the variable is unset (started by hand, without
  // dsrund). The variable is removed and the descriptor made close-on-exec, so that children do not
  // inherit it.
  static StatusOr<std::unique_ptr<RankLink>> FromEnvironment();

  // Blocks while the socket is full. kUnavailable once the daemon is gone.
  Status Send(const RankMessage& message);

  // The next message from the daemon. kDeadlineExceeded when none comes in time, kUnavailable once
  // the daemon is gone.
  StatusOr<RankMessage> Receive(std::chrono::milliseconds timeout);

 private:
  UniqueFd fd_;
  std::mutex send_mutex_;
  RankMessageReader reader_;  // used by Receive only
};

}  // namespace ds
