#include "cli/console/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/byte_size.h"

namespace ds::cli {
namespace {

// The pace is that of so many steps.
constexpr std::size_t kRecentSteps = 20;

std::optional<double> Number(const nlohmann::json& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string Fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

}  // namespace

bool Progress::OnEvent(const v1::Event& event) {
  if (event.has_rank_report()) return OnReport(event.rank_report(), event.unix_nanos());
  if (event.has_heartbeat()) {
    for (const v1::RankVital& rank : event.heartbeat().ranks()) {
      resident_bytes_[static_cast<int>(rank.rank())] = rank.rss_bytes();
    }
  }
  return false;
}

bool Progress::OnReport(const v1::RankReport& report, std::int64_t unix_nanos) {
  if (report.kind() != "step" && report.kind() != "phase" && report.kind() != "beacon")
    return false;
  const auto body = nlohmann::json::parse(report.body(), nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return false;
  if (const auto total = Number(body, "total_steps"); total.has_value()) {
    total_steps_ = static_cast<std::int64_t>(*total);
  }
  if (report.kind() == "step") {
    OnStep(body, unix_nanos);
    return step_.has_value();
  }
  if (report.kind() == "beacon") {
    const auto memory = body.find("memory");
    if (memory == body.end() || !memory->is_object()) return false;
    if (const auto bytes = Number(*memory, "resident_bytes"); bytes.has_value()) {
      resident_bytes_[static_cast<int>(report.rank())] = static_cast<std::uint64_t>(*bytes);
    }
    return false;
  }
  const auto name = body.find("name");
  if (report.rank() == 0 && name != body.end() && name->is_string()) phase_ = *name;
  return false;
}

void Progress::OnStep(const nlohmann::json& body, std::int64_t unix_nanos) {
  const std::optional<double> step = Number(body, "step");
  if (!step.has_value()) return;
  step_ = static_cast<std::int64_t>(*step);
  loss_ = Number(body, "loss");
  if (loss_.has_value() && !first_.has_value()) first_.emplace(*step_, *loss_);
  tokens_per_second_ = Number(body, "tokens_per_second");
  // A restart goes back to its checkpoint: the pace begins anew.
  if (!recent_.empty() && *step_ <= recent_.back().step) recent_.clear();
  recent_.push_back({*step_, unix_nanos});
  if (recent_.size() > kRecentSteps) recent_.pop_front();
}

std::string Progress::Line() const {
  if (!step_.has_value()) return phase_;
  std::string line = "step " + std::to_string(*step_);
  if (total_steps_ > 0) line += "/" + std::to_string(total_steps_);
  if (loss_.has_value()) line += "  loss " + Fixed(*loss_, 4);
  if (tokens_per_second_.has_value()) line += "  " + Fixed(*tokens_per_second_, 0) + " tokens/s";
  if (const auto left = SecondsLeft(); left.has_value()) line += "  left " + ShowDuration(*left);
  if (const std::uint64_t bytes = LargestRank(); bytes > 0) {
    line += "  " + ByteSize(bytes) + "/rank";
  }
  return line;
}

std::string Progress::LossSummary() const {
  if (!loss_.has_value() || !first_.has_value() || first_->first == step_) return "";
  return "loss " + Fixed(first_->second, 4) + " at step " + std::to_string(first_->first) + ", " +
         Fixed(*loss_, 4) + " at step " + std::to_string(*step_);
}

std::uint64_t Progress::LargestRank() const {
  std::uint64_t largest = 0;
  for (const auto& [rank, bytes] : resident_bytes_) largest = std::max(largest, bytes);
  return largest;
}

std::optional<double> Progress::SecondsLeft() const {
  if (total_steps_ <= 0 || recent_.size() < 2) return std::nullopt;
  const Moment& first = recent_.front();
  const Moment& last = recent_.back();
  if (last.step <= first.step || last.step >= total_steps_) return std::nullopt;
  const double seconds_per_step = static_cast<double>(last.unix_nanos - first.unix_nanos) * 1e-9 /
                                  static_cast<double>(last.step - first.step);
  return seconds_per_step * static_cast<double>(total_steps_ - last.step);
}

std::string ShowDuration(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  const auto whole = static_cast<std::int64_t>(std::max(0.0, std::round(seconds)));
  std::array<char, 64> text{};
  if (whole >= kHour) {
    std::snprintf(text.data(), text.size(), "%ldh%02ldm", whole / kHour, whole % kHour / kMinute);
  } else if (whole >= kMinute) {
    std::snprintf(text.data(), text.size(), "%ldm%02lds", whole / kMinute, whole % kMinute);
  } else {
    std::snprintf(text.data(), text.size(), "%lds", whole);
  }
  return text.data();
}

}  // namespace ds::cli
