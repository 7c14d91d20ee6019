#include "runtime/config/check/rule.h"

#include <string>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {

bool RuleContext::IsChanged(Key key) const {
  return values.IsGiven(key) && !IsDefault(*FindSetting(key), values.Get(key));
}

void RuleContext::Refuse(Key key, std::string_view problem) {
  issues.Error(key, std::string(key) + " " + std::string(problem), values.PositionOf(key));
}

}  // namespace ds::config
