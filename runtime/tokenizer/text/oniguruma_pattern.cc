#include <algorithm>
#include <array>
#include <string>

#include "runtime/tokenizer/text/regex.h"

namespace ds::tokenizer {
namespace {

// Oniguruma's \w in PCRE2's syntax, for use inside a set.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";

// Properties with the same name in PCRE2; other long names are scripts.
constexpr std::string_view kProperties[] = {
    "any",       "join_control",          "alphabetic", "lowercase",
    "uppercase", "white_space",           "emoji",      "ideographic",
    "math",      "extended_pictographic", "ascii"};

struct LongName {
  std::string_view name, category;
};
constexpr LongName kCategories[] = {{"letter", "L"},
                                    {"mark", "M"},
                                    {"number", "N"},
                                    {"punctuation", "P"},
                                    {"symbol", "S"},
                                    {"separator", "Z"},
                                    {"other", "C"},
                                    {"decimal_number", "Nd"},
                                    {"uppercase_letter", "Lu"},
                                    {"lowercase_letter", "Ll"},
                                    {"space_separator", "Zs"},
                                    {"space", "White_Space"},
                                    {"alpha", "Alphabetic"},
                                    {"digit", "Nd"},
                                    {"control", "Cc"}};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  StatusOr<std::string> Run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        DS_RETURN_IF_ERROR(Escape());
      } else if (in_set_) {
        DS_RETURN_IF_ERROR(InSet(c));
      } else {
        DS_RETURN_IF_ERROR(Outside(c));
      }
    }
    return std::move(out_);
  }

 private:
  Status Refuse(const std::string& what) const {
    return UnimplementedError("the pattern '" + std::string(pattern_) + "' has " + what +
                              " at byte " + std::to_string(at_) + ", which dsrun does not support");
  }

  bool Follows(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void Take(std::size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ = std::min(at_ + count, pattern_.size());
  }

  Status Outside(char c) {
    if (c == '[') {
      in_set_ = true;
      Take(1);
      if (Follows("^")) Take(1);
      if (Follows("]")) Take(1);
      return OkStatus();
    }
    if (Follows("(?")) return Flags();
    if (c == '}' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] == '+') {
      return Refuse("a repeated {n,m}");
    }
    Take(1);
    return OkStatus();
  }

  // Ruby's (?m) lets . match a newline, which PCRE2 calls (?s).
  Status Flags() {
    Take(2);
    const std::size_t end = pattern_.find_first_not_of("imx-", at_);
    if (end == std::string_view::npos || (pattern_[end] != ':' && pattern_[end] != ')')) {
      return OkStatus();
    }
    for (; at_ < end; ++at_) out_ += pattern_[at_] == 'm' ? 's' : pattern_[at_];
    return OkStatus();
  }

  Status InSet(char c) {
    if (Follows("&&")) return Refuse("an intersection of sets");
    if (c == '[') return InnerSet();
    if (c == ']' && inner_sets_ > 0) {
      --inner_sets_;
      ++at_;
      return OkStatus();
    }
    if (c == ']') in_set_ = false;
    Take(1);
    return OkStatus();
  }

  // A set in a set adds its characters, as if it had no brackets.
  Status InnerSet() {
    if (Follows("[^")) return Refuse("a negated set in a set");
    if (Follows("[:")) return Refuse("a POSIX bracket");
    ++inner_sets_;
    ++at_;
    return OkStatus();
  }

  // Writes a class that is a set in PCRE2's syntax: `inside`, or its complement.
  Status Class(std::string_view inside, bool negated) {
    if (in_set_ && negated) return Refuse("a negated class in a set");
    at_ += 2;
    if (in_set_) {
      out_ += inside;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += inside;
      out_ += "]";
    }
    return OkStatus();
  }

  Status Boundary(bool negated) {
    if (in_set_) return Refuse("a backspace");
    const std::string word = "[" + std::string(kWord) + "]";
    const std::string_view in = "(?=", out = "(?!";
    out_ += "(?:(?<=" + word + ")" + std::string(negated ? in : out) + word + ")|(?<!" + word +
            ")" + std::string(negated ? out : in) + word + "))";
    at_ += 2;
    return OkStatus();
  }

  Status Escape() {
    if (at_ + 1 >= pattern_.size()) return Refuse("a backslash at its end");
    const auto replace = [&](std::string_view with) {
      out_ += with;
      at_ += 2;
      return OkStatus();
    };
    switch (pattern_[at_ + 1]) {
      case 's':
        return replace(R"(\p{White_Space})");
      case 'S':
        return replace(R"(\P{White_Space})");
      case 'd':
        return replace(R"(\p{Nd})");
      case 'D':
        return replace(R"(\P{Nd})");
      case 'w':
        return Class(kWord, false);
      case 'W':
        return Class(kWord, true);
      case 'h':
        return Class(kHexDigit, false);
      case 'H':
        return Class(kHexDigit, true);
      case 'b':
        return Boundary(false);
      case 'B':
        return Boundary(true);
      case 'u':
        return CodeUnit();
      case 'p':
      case 'P':
        return Property();
      case 'G':
      case 'K':
      case 'g':
      case 'k':
        return Refuse("\\" + std::string(1, pattern_[at_ + 1]));
      default:
        Take(2);
        return OkStatus();
    }
  }

  Status CodeUnit() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    const bool good = digits.size() == 4 &&
                      digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
    if (!good) return Refuse("\\u without four hexadecimal digits");
    out_ += "\\x{" + std::string(digits) + "}";
    at_ += 6;
    return OkStatus();
  }

  Status Property() {
    const std::size_t end = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == std::string_view::npos) {
      Take(2);
      return OkStatus();
    }
    std::string name(pattern_.substr(at_ + 3, end - at_ - 3));
    out_ += pattern_.substr(at_, 3);
    at_ = end + 1;
    if (name.starts_with("^")) {
      out_ += '^';
      name.erase(0, 1);
    }
    out_ += Named(name) + "}";
    return OkStatus();
  }

  static std::string Named(const std::string& name) {
    if (name.size() <= 2) return name;
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
      return c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(c));
    });
    for (const LongName& known : kCategories) {
      if (known.name == lower) return std::string(known.category);
    }
    const bool property =
        std::find(std::begin(kProperties), std::end(kProperties), lower) != std::end(kProperties);
    return property ? name : "sc:" + name;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_set_ = false;
  int inner_sets_ = 0;
  std::string out_;
};

}  // namespace

StatusOr<std::string> TranslateOnigurumaPattern(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace ds::tokenizer
