#include "runtime/comm/net/link_store.h"

#include <nlohmann/json.hpp>

namespace ds::comm {

using Json = nlohmann::json;

Status LinkStore::Put(const std::string& key, const std::string& value) {
  const Json body = {{"key", key}, {"value", value}};
  return link_->Send({RankMessageKind::kPut, body.dump()});
}

StatusOr<std::string> LinkStore::Get(const std::string& key, std::chrono::milliseconds timeout) {
  const Json question = {{"key", key}};
  DS_RETURN_IF_ERROR(link_->Send({RankMessageKind::kGet, question.dump()}));
  DS_ASSIGN_OR_RETURN(const RankMessage answer, link_->Receive(timeout));
  const Json body = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (answer.kind != RankMessageKind::kValue || !body.is_object() || body.value("key", "") != key) {
    return InternalError("rank link: the daemon's answer is not about " + key);
  }
  return body.value("value", "");
}

}  // namespace ds::comm
