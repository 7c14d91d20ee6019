#include "daemon/logs/shared_values.h"

#include <utility>
#include <vector>

namespace ds::daemon {

Status SharedValues::Put(const std::string& key, const std::string& value) {
  if (values_.contains(key)) return OkStatus();
  if (bytes_ + key.size() + value.size() > kMostBytes) {
    return FailedPreconditionError("the ranks have exchanged more than " +
                                   std::to_string(kMostBytes >> 20) + " MiB");
  }
  bytes_ += key.size() + value.size();
  values_[key] = value;
  std::vector<Answer> answers;
  for (auto question = asked_.begin(); question != asked_.end();) {
    if (question->second.key == key) {
      answers.push_back(std::move(question->second.answer));
      question = asked_.erase(question);
    } else {
      ++question;
    }
  }
  // An answer may call Forget.
  for (const Answer& answer : answers) answer(value);
  return OkStatus();
}

void SharedValues::Ask(std::uint32_t rank, const std::string& key, Answer answer) {
  asked_.erase(rank);
  if (const auto found = values_.find(key); found != values_.end()) {
    answer(found->second);
  } else {
    asked_[rank] = {key, std::move(answer)};
  }
}

}  // namespace ds::daemon
