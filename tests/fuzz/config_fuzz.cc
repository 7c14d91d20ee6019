// Feeds arbitrary bytes to CheckConfig. Beside not crashing, an accepted config must stay the same
// config when its plain form is read again, as it is by every rank.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/config/check_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ds::config::CheckResult result = ds::config::CheckConfig(text, "ds.json", 3);
  DS_CHECK(!ds::config::ToCheckReport(result).dump().empty());
  DS_CHECK(result.ok == result.errors.empty());
  if (result.ok) {
    const std::string plain = ds::config::ToDsConfigJson(result);
    const ds::config::CheckResult again = ds::config::CheckConfig(plain, "plain", 3);
    DS_CHECK(again.ok && ds::config::ToDsConfigJson(again) == plain);
  }
  return 0;
}
