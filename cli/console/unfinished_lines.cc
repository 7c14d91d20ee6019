#include "cli/console/unfinished_lines.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/printable.h"
#include "runtime/base/utf8.h"

namespace ds::cli {
namespace {

// A longer line is shown in pieces.
constexpr std::size_t kMaxHeld = std::size_t{1} << 20;

// Returns the finished lines of `text` as last drawn; `*rest` receives the unfinished one.
std::string DrawLines(std::string_view text, std::string* rest) {
  std::string lines;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.append(LastDrawn(text.substr(0, end))).push_back('\n');
    text.remove_prefix(end + 1);
  }
  const std::string_view drawn = LastDrawn(text);
  rest->assign(drawn);
  if (text.ends_with('\r') && !drawn.empty()) rest->push_back('\r');  // the next text replaces it
  return lines;
}

// Returns the length of the escape sequence at the start of `text`; 0 if there is none.
std::size_t EscapeLength(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const auto end =
      std::find_if(text.begin() + 2, text.end(), [](char c) { return c >= '@' && c <= '~'; });
  return end == text.end() ? text.size() : static_cast<std::size_t>(end - text.begin()) + 1;
}

bool IsWide(char32_t c) {
  return (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
         (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
         (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) || c >= 0x20000;
}

}  // namespace

std::string_view LastDrawn(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t back = line.rfind('\r');
  return back == std::string_view::npos ? line : line.substr(back + 1);
}

void UnfinishedLines::Add(OutputChunk* chunk, bool partial) {
  const std::pair<int, bool> key(chunk->rank, chunk->is_stderr);
  if (const auto held = held_.find(key); held != held_.end()) {
    chunk->text.insert(0, held->second.text);
    held_.erase(held);
  }
  const bool answered = style_.prompts && chunk->rank == 0;
  const bool drawn = Redraws(*chunk);
  if (drawn ? !partial && chunk->text.find('\r') == std::string::npos : !partial || answered)
    return;
  OutputChunk rest{"", chunk->is_stderr, chunk->rank, chunk->host, chunk->unix_nanos};
  if (drawn) {
    chunk->text = DrawLines(chunk->text, &rest.text);
  } else {
    rest.text = std::exchange(chunk->text, "");
  }
  if (rest.text.size() > kMaxHeld) {
    chunk->text += rest.text;
  } else if (!rest.text.empty()) {
    held_.emplace(key, std::move(rest));
  }
}

std::vector<OutputChunk> UnfinishedLines::TakeRank(int rank) {
  std::vector<OutputChunk> taken;
  for (const bool is_stderr : {false, true}) {
    const auto held = held_.find({rank, is_stderr});
    if (held == held_.end()) continue;
    taken.push_back(std::move(held->second));
    held_.erase(held);
  }
  return taken;
}

std::vector<OutputChunk> UnfinishedLines::TakeAll() {
  std::vector<OutputChunk> taken;
  for (auto& [key, held] : held_) taken.push_back(std::move(held));
  held_.clear();
  return taken;
}

std::vector<const OutputChunk*> UnfinishedLines::Shown() const {
  std::vector<const OutputChunk*> shown;
  for (auto held = held_.rbegin(); held != held_.rend(); ++held) {
    if (Redraws(held->second)) shown.push_back(&held->second);
  }
  return shown;
}

std::string FitRow(std::string_view line, int columns) {
  std::string plain;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t escape = EscapeLength(line.substr(at));
    if (escape == 0 && line[at] != '\r')
      plain += line[at] == '\t' || line[at] == '\n' ? ' ' : line[at];
    at += std::max<std::size_t>(escape, 1);
  }
  plain = Printable(plain);
  int width = 0;
  for (std::size_t at = 0; at < plain.size();) {
    const Utf8Character next = FirstUtf8Character(std::string_view(plain).substr(at));
    width += IsWide(next.code_point) ? 2 : 1;
    if (width > columns) return plain.substr(0, at);
    at += next.length;
  }
  return plain;
}

}  // namespace ds::cli
