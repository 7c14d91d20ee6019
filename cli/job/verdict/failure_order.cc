#include "cli/job/verdict/failure_order.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>

namespace ds::cli {
namespace {

using Time = std::chrono::nanoseconds;

std::string FormatMilliseconds(Time duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f ms",
                std::chrono::duration<double, std::milli>(duration).count());
  return text.data();
}

// The first of each host by its own clock, in the order of arrival.
std::vector<const FailedExit*> FindFirstOfHosts(const std::vector<const FailedExit*>& failures) {
  std::map<std::string, const FailedExit*> first;
  for (const FailedExit* each : failures) {
    const FailedExit*& known = first.try_emplace(each->host, each).first->second;
    const bool both_told = known->exit.boot_nanos() != 0 && each->exit.boot_nanos() != 0;
    if (both_told && each->exit.boot_nanos() < known->exit.boot_nanos()) known = each;
  }
  std::vector<const FailedExit*> found;
  for (const FailedExit* each : failures) {
    if (first.at(each->host) == each) found.push_back(each);
  }
  return found;
}

}  // namespace

const FailedExit* FindFirst(const std::vector<const FailedExit*>& failures) {
  const std::vector<const FailedExit*> candidates = FindFirstOfHosts(failures);
  if (candidates.empty()) return nullptr;
  Time bound = Time::max();  // the first one has happened by then
  for (const FailedExit* each : candidates) {
    if (each->when.has_value()) bound = std::min(bound, each->when->latest);
  }
  return *std::find_if(candidates.begin(), candidates.end(), [bound](const FailedExit* each) {
    return !each->when.has_value() || each->when->earliest <= bound;
  });
}

std::string DescribeNext(const FailedExit& first, const std::vector<const FailedExit*>& failures) {
  std::vector<const FailedExit*> others = failures;
  std::erase(others, &first);
  const FailedExit* const next = FindFirst(others);
  if (next == nullptr) return "";
  const std::string rank = "rank " + std::to_string(next->exit.rank()) + " on " + next->host;
  if (next->host == first.host && next->exit.boot_nanos() != 0 && first.exit.boot_nanos() != 0) {
    return rank + " failed " +
           FormatMilliseconds(Time(next->exit.boot_nanos()) - Time(first.exit.boot_nanos())) +
           " later";
  }
  if (!next->when.has_value() || !first.when.has_value()) {
    return rank + " failed, too, at an unknown time: the order of the reports counts";
  }
  if (next->when->earliest > first.when->latest) {
    return rank + " failed " + FormatMilliseconds(next->when->middle() - first.when->middle()) +
           " later";
  }
  const Time error = std::max(next->when->latest, first.when->latest) -
                     std::min(next->when->earliest, first.when->earliest);
  return rank + " failed within " + FormatMilliseconds(error) +
         " of it, in an order that their clocks do not tell: the order of the reports counts";
}

}  // namespace ds::cli
