#include "cli/console/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/byte_size.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

// The number of steps for the measured speed.
constexpr std::size_t kRecentSteps = 20;

std::string FormatFixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

// Returns the evaluation results in a line of metrics.jsonl; "" if there are none.
std::string DescribeEvaluation(const std::string& metrics) {
  const auto json = nlohmann::json::parse(metrics, nullptr, /*allow_exceptions=*/false);
  const auto find = [&](const char* key) -> std::optional<double> {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (found == json.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
  };
  const auto loss = find("eval_loss"), accuracy = find("eval_accuracy");
  if (!loss) return "";
  return "eval loss " + FormatFixed(*loss, 4) + " (perplexity " + FormatFixed(std::exp(*loss), 2) +
         (accuracy ? ", accuracy " + FormatFixed(100.0 * *accuracy, 1) + " %" : "") + ")";
}

}  // namespace

bool Progress::OnEvent(const v1::Event& event, std::chrono::nanoseconds now) {
  if (event.has_rank_report()) return OnReport(event.rank_report(), now);
  if (event.has_heartbeat()) {
    for (const v1::RankVital& rank : event.heartbeat().ranks()) {
      resident_bytes_[static_cast<int>(rank.rank())] = rank.rss_bytes();
    }
  }
  return false;
}

bool Progress::OnReport(const v1::RankReport& report, std::chrono::nanoseconds now) {
  if (report.has_step()) return OnStep(report.step(), now);
  if (report.has_phase()) OnPhase(report.phase(), report.rank() == 0);
  if (report.has_beacon() && report.beacon().resident_bytes() > 0) {
    resident_bytes_[static_cast<int>(report.rank())] = report.beacon().resident_bytes();
  }
  return false;
}

void Progress::OnPhase(const v1::RankPhase& phase, bool of_first_rank) {
  if (phase.total_steps() > 0) total_steps_ = static_cast<std::int64_t>(phase.total_steps());
  if (of_first_rank && !phase.name().empty()) phase_ = phase.name();
}

bool Progress::OnStep(const v1::RankStep& step, std::chrono::nanoseconds now) {
  if (!step.has_step()) return false;
  step_ = static_cast<std::int64_t>(step.step());
  loss_ = step.has_loss() ? std::optional(step.loss()) : std::nullopt;
  if (loss_.has_value() && !first_.has_value()) first_.emplace(*step_, *loss_);
  if (std::string text = DescribeEvaluation(step.json()); !text.empty()) {
    evaluated_.emplace(*step_, std::move(text));
  }
  tokens_per_second_ =
      step.has_tokens_per_second() ? std::optional(step.tokens_per_second()) : std::nullopt;
  // A restart goes back to its checkpoint, so the speed is measured again.
  if (!recent_.empty() && *step_ <= recent_.back().step) recent_.clear();
  recent_.push_back({*step_, now});
  if (recent_.size() > kRecentSteps) recent_.pop_front();
  return true;
}

std::string Progress::Line() const {
  if (!step_.has_value()) return Printable(phase_);
  std::string line = "step " + std::to_string(*step_);
  if (total_steps_ > 0) line += "/" + std::to_string(total_steps_);
  if (loss_.has_value()) line += "  loss " + FormatFixed(*loss_, 4);
  if (evaluated_.has_value()) line += "  " + evaluated_->second;
  if (tokens_per_second_.has_value())
    line += "  " + FormatFixed(*tokens_per_second_, 0) + " tokens/s";
  if (const auto left = SecondsLeft(); left.has_value()) line += "  left " + ShowDuration(*left);
  if (const std::uint64_t bytes = FindLargestRank(); bytes > 0) {
    line += "  " + ByteSize(bytes) + "/rank";
  }
  return line;
}

std::string Progress::SummarizeLoss() const {
  if (!loss_.has_value() || !first_.has_value() || first_->first == step_) return "";
  return "loss " + FormatFixed(first_->second, 4) + " at step " + std::to_string(first_->first) +
         ", " + FormatFixed(*loss_, 4) + " at step " + std::to_string(*step_);
}

std::string Progress::SummarizeEvaluation() const {
  if (!evaluated_.has_value()) return "";
  return evaluated_->second + " at step " + std::to_string(evaluated_->first);
}

std::uint64_t Progress::FindLargestRank() const {
  std::uint64_t largest = 0;
  for (const auto& [rank, bytes] : resident_bytes_) largest = std::max(largest, bytes);
  return largest;
}

std::optional<double> Progress::SecondsLeft() const {
  if (total_steps_ <= 0 || recent_.size() < 2) return std::nullopt;
  const Moment& first = recent_.front();
  const Moment& last = recent_.back();
  if (last.step <= first.step || last.step >= total_steps_) return std::nullopt;
  const double seconds = std::chrono::duration<double>(last.time - first.time).count();
  const double steps = static_cast<double>(last.step) - static_cast<double>(first.step);
  const double steps_left = static_cast<double>(total_steps_) - static_cast<double>(last.step);
  return seconds / steps * steps_left;
}

std::string ShowDuration(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  const auto rounded = static_cast<std::int64_t>(std::max(0.0, std::round(seconds)));
  std::array<char, 64> text{};
  if (rounded >= kHour) {
    std::snprintf(text.data(), text.size(), "%ldh%02ldm", rounded / kHour,
                  rounded % kHour / kMinute);
  } else if (rounded >= kMinute) {
    std::snprintf(text.data(), text.size(), "%ldm%02lds", rounded / kMinute, rounded % kMinute);
  } else {
    std::snprintf(text.data(), text.size(), "%lds", rounded);
  }
  return text.data();
}

}  // namespace ds::cli
