#pragma once

// SshSettings are the values of ssh_config's keywords for one host, as written there or as printed
// by `ssh -G`. They come from dsrun's own reader (ssh_config.h) or from OpenSSH's client.
//
// A plain value.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ds::cli {

class SshSettings {
 public:
  // Parses lines of "KEYWORD VALUE", as `ssh -G` prints them. Pure.
  static SshSettings Parse(const std::string& printed);

  // Appends a value. `keyword` in any case.
  void Add(std::string_view keyword, std::string_view value);

  // Returns the first value, which is the one that counts; "" = not set. `keyword` in lower case.
  std::string First(std::string_view keyword) const;
  // Returns all values, in order, for keywords that add up.
  std::vector<std::string> All(std::string_view keyword) const;
  // Returns the first value without quotation marks, up to a blank; "" = not set.
  std::string FirstWord(std::string_view keyword) const;
  // Returns a file for libssh: the values of the keywords that it handles as OpenSSH does.
  std::string TextForLibssh() const;

 private:
  std::vector<std::pair<std::string, std::string>> values_;  // keyword in lower case, value
};

// Returns the words of a line, without quotation marks, up to a comment.
std::vector<std::string> SplitConfigWords(std::string_view line, std::string_view blanks = " \t\r");

}  // namespace ds::cli
