// Feeds arbitrary bytes to CheckConfig. Beside not crashing, text that is JSON must be read as just
// that, and an accepted config must stay the same config when its plain form is read again, as it
// is by every rank.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/base/positioned_json.h"
#include "runtime/config/file/check_config.h"

namespace {

using Json = nlohmann::ordered_json;

// Hjson holds JSON, but for what is refused on purpose: repeated names and endless nesting.
void CheckThatJsonStaysJson(std::string_view text) {
  // The parser that this is compared with takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) return;
  const Json strict = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!strict.is_structured()) return;
  const ds::JsonReading reading = ds::ReadPositionedJson(text);
  if (reading.problems.empty()) DS_CHECK(ds::FullValue(reading.root) == strict);
  for (const ds::JsonProblem& problem : reading.problems) {
    DS_CHECK(problem.message == "nested too deep" ||
             problem.message.ends_with("is given twice in one object"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckThatJsonStaysJson(text);
  const ds::config::CheckResult result = ds::config::CheckConfig(text, "ds.json", 3);
  DS_CHECK(!ds::config::ToErrorReport(result).dump().empty());
  DS_CHECK(result.ok == result.errors.empty());
  if (result.ok) {
    const std::string plain = ds::config::ToDsConfigJson(result);
    const ds::config::CheckResult again = ds::config::CheckConfig(plain, "plain", 3);
    DS_CHECK(again.ok && ds::config::ToDsConfigJson(again) == plain);
    const std::string resolved = ds::config::ToResolvedConfigJson(result).dump();
    DS_CHECK(ds::config::CheckConfig(resolved, "resolved", 3).ok);
  }
  return 0;
}
