#include "runtime/rank/text_printer.h"

#include <cerrno>
#include <utility>

namespace ds::rank {

using inference::Ending;
using Json = nlohmann::ordered_json;

namespace {

// Returns the text of a prompt, or of the last message of a conversation; JSON if that has no text.
std::string AskedText(const Json& prompt) {
  if (prompt.is_string()) return prompt.get<std::string>();
  const Json& messages = prompt.is_object() ? prompt.at("messages") : prompt;
  const Json& message = messages.empty() ? messages : messages.back();
  const bool has_text =
      message.is_object() && message.contains("content") && message["content"].is_string();
  return has_text ? message["content"].get<std::string>() : prompt.dump();
}

}  // namespace

void TextPrinter::Note(const Status& status) {
  if (status_.ok()) status_ = status;
}

void TextPrinter::Write(const std::string& text) {
  if (!status_.ok()) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), out_) == text.size();
  if (!written || std::fflush(out_) != 0) Note(ErrnoError(errno, "standard output"));
}

void TextPrinter::Begin(const std::vector<Announced>& batch) {
  batch_.clear();
  printed_of_batch_ = 0;
  for (const Announced& announced : batch) {
    batch_.push_back({.announced = announced, .stream = inference::TextStream(tokenizer_)});
  }
}

void TextPrinter::OnToken(std::size_t prompt, std::int64_t token) {
  Text& text = batch_.at(prompt);
  text.tokens.push_back(token);
  const auto piece = text.stream.Add(token);
  Note(piece.status());
  if (piece.ok() && format_.streams) Write(*piece);
}

void TextPrinter::OnEnd(std::size_t prompt, Ending ending) {
  Text& text = batch_.at(prompt);
  text.ending = ending;
  if (!format_.streams) return PrintEnded();
  const auto rest = text.stream.Finish();
  Note(rest.status());
  if (rest.ok()) Write(*rest + "\n");
}

void TextPrinter::PrintEnded() {
  while (printed_of_batch_ < batch_.size() && batch_[printed_of_batch_].ending) {
    PrintFull(batch_[printed_of_batch_]);
    ++printed_of_batch_;
    ++printed_;
  }
}

void TextPrinter::PrintFull(const Text& text) {
  const auto all_text = text.stream.Text();
  Note(all_text.status());
  if (!all_text.ok()) return;
  const Json& prompt = *text.announced.prompt;
  if (format_.json) {
    const Json line = {{"index", printed_},
                       {"prompt", prompt},
                       {"text", *all_text},
                       {"tokens", text.tokens},
                       {"prompt_tokens", text.announced.tokens},
                       {"finish_reason", text.ending == Ending::kEndToken ? "stop" : "length"}};
    return Write(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  Write((printed_ == 0 ? "> " : "\n> ") + AskedText(prompt) + "\n" + *all_text + "\n");
}

}  // namespace ds::rank
