// Feeds arbitrary bytes, in pieces, to the reader of the rank link. What it takes for a message is
// one when it is written again; how the bytes are cut makes no difference. What the daemon makes of
// a message can be sent to the controller: its texts are UTF-8.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/logs/link_reader.h"
#include "runtime/base/check.h"
#include "runtime/base/rank_link.h"

namespace {

struct Outcome {
  std::vector<ds::RankMessage> messages;
  bool broken = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome ReadAll(std::string_view bytes, std::size_t piece) {
  ds::RankMessageReader reader;
  Outcome outcome;
  for (std::size_t at = 0; at < bytes.size() && !outcome.broken; at += piece) {
    reader.Feed(bytes.substr(at, piece));
    for (;;) {
      auto message = reader.Next();
      outcome.broken = !message.ok();
      if (!message.ok() || !message->has_value()) break;
      outcome.messages.push_back(**message);
    }
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = ReadAll(bytes, bytes.size() + 1);
  DS_CHECK(ReadAll(bytes, data[0] + 1U) == whole);
  for (const ds::RankMessage& message : whole.messages) {
    const auto line = ds::EncodeRankMessage(message);
    DS_CHECK(line.ok() && line->size() <= ds::kMaxLineBytes);
    DS_CHECK(ds::DecodeRankMessage(line->substr(0, line->size() - 1)).value() == message);
    const auto report = ds::daemon::MakeRankReport(0, message);
    DS_CHECK(dsrun::v1::RankReport().ParseFromString(report.SerializeAsString()));
  }
  return 0;
}
