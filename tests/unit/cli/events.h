#pragma once

// Shorthand for the events a daemon sends.

#include <string>

#include "proto/dsrun.pb.h"

namespace ds::cli::testing {

namespace v1 = ::dsrun::v1;

inline v1::Event Started(int rank, int pid) {
  v1::Event event;
  event.mutable_rank_started()->set_rank(rank);
  event.mutable_rank_started()->set_pid(pid);
  return event;
}

inline v1::Event Output(int rank, const std::string& data, bool is_stderr = false) {
  v1::Event event;
  event.mutable_rank_output()->set_rank(rank);
  event.mutable_rank_output()->set_data(data);
  event.mutable_rank_output()->set_stream(is_stderr ? v1::RankOutput::STDERR
                                                    : v1::RankOutput::STDOUT);
  return event;
}

// Marks output that ends inside a line.
inline v1::Event Partial(v1::Event event) {
  event.mutable_rank_output()->set_partial(true);
  return event;
}

inline v1::Event Phase(int rank, const std::string& name, std::uint64_t total_steps = 0) {
  v1::Event event;
  event.mutable_rank_report()->set_rank(rank);
  event.mutable_rank_report()->mutable_phase()->set_name(name);
  event.mutable_rank_report()->mutable_phase()->set_total_steps(total_steps);
  return event;
}

inline v1::Event Beacon(int rank, std::uint64_t step, std::uint64_t resident_bytes = 0) {
  v1::Event event;
  event.mutable_rank_report()->set_rank(rank);
  event.mutable_rank_report()->mutable_beacon()->set_step(step);
  event.mutable_rank_report()->mutable_beacon()->set_resident_bytes(resident_bytes);
  return event;
}

// Rank 0's report of a finished step; `json` is its line of metrics.jsonl.
inline v1::Event Step(std::uint64_t number, double loss, const std::string& json = "") {
  v1::Event event;
  v1::RankStep* step = event.mutable_rank_report()->mutable_step();
  step->set_step(number);
  step->set_loss(loss);
  step->set_json(json);
  return event;
}

inline v1::Event Notice(int rank, const std::string& text) {
  v1::Event event;
  event.mutable_rank_report()->set_rank(rank);
  event.mutable_rank_report()->mutable_notice()->set_text(text);
  return event;
}

inline v1::Event Checkpoint(std::uint64_t step, const std::string& path) {
  v1::Event event;
  event.mutable_rank_report()->mutable_checkpoint()->set_step(step);
  event.mutable_rank_report()->mutable_checkpoint()->set_path(path);
  return event;
}

inline v1::Event Error(int rank, const std::string& message, const std::string& hint = "") {
  v1::Event event;
  event.mutable_rank_report()->set_rank(rank);
  event.mutable_rank_report()->mutable_error()->set_message(message);
  event.mutable_rank_report()->mutable_error()->set_hint(hint);
  return event;
}

inline v1::Event Exited(int rank, int exit_code, int signal = 0, bool stopping = false) {
  v1::Event event;
  v1::RankExited* exit = event.mutable_rank_exited();
  exit->set_rank(rank);
  exit->set_pid(1000 + rank);
  exit->set_exit_code(exit_code);
  exit->set_signal(signal);
  exit->set_stopping(stopping);
  return event;
}

inline v1::Event Ended() {
  v1::Event event;
  event.mutable_generation_ended();
  return event;
}

inline v1::Event At(std::int64_t unix_nanos, v1::Event event) {
  event.set_unix_nanos(unix_nanos);
  return event;
}

}  // namespace ds::cli::testing
