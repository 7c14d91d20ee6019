#include "tests/support/case_file.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitle = "### ";
constexpr std::string_view kSection = "--- ";

std::string WithoutEndingNewlines(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

class CaseParser {
 public:
  explicit CaseParser(std::string name) : name_(std::move(name)) {}

  // Takes the next line, with its newline.
  Status Take(std::string_view line) {
    ++line_;
    if (line.starts_with(kTitle)) return BeginCase(line);
    if (line.starts_with(kSection)) return BeginSection(line);
    if (section_ == Section::kExpected) {
      file_.cases.back().expected += line;
      return OkStatus();
    }
    (file_.cases.empty() ? file_.preamble : file_.cases.back().head) += line;
    if (section_ == Section::kInput) file_.cases.back().input += line;
    return OkStatus();
  }

  StatusOr<CaseFile> Finish() {
    DS_RETURN_IF_ERROR(EndCase());
    if (file_.cases.empty()) return InvalidArgumentError(name_ + ": there is no case in it");
    return std::move(file_);
  }

 private:
  enum class Section { kNone, kInput, kExpected };

  Status Error(int line, const std::string& problem) const {
    return InvalidArgumentError(name_ + ":" + std::to_string(line) + ": " + problem);
  }

  Status BeginCase(std::string_view line) {
    DS_RETURN_IF_ERROR(EndCase());
    const std::string title = WithoutEndingNewlines(std::string(line.substr(kTitle.size())));
    if (title.find_first_not_of(' ') == std::string::npos) {
      return Error(line_, "the case has no title");
    }
    const auto [first, is_new] = lines_.emplace(title, line_);
    if (!is_new) {
      return Error(line_, "the title is given twice, first in line " +
                              std::to_string(first->second) + ": " + title);
    }
    file_.cases.push_back({.title = title, .line = line_, .head = std::string(line)});
    section_ = Section::kNone;
    return OkStatus();
  }

  Status BeginSection(std::string_view line) {
    const std::string section = WithoutEndingNewlines(std::string(line.substr(kSection.size())));
    if (file_.cases.empty()) return Error(line_, "a section before the first title");
    if (section == "input" && section_ == Section::kNone) {
      section_ = Section::kInput;
    } else if (section == "expected" && section_ == Section::kInput) {
      section_ = Section::kExpected;
    } else {
      return Error(line_, "section '" + section +
                              "': a case has one section 'input' and then one 'expected'");
    }
    file_.cases.back().head += line;
    return OkStatus();
  }

  Status EndCase() {
    if (file_.cases.empty()) return OkStatus();
    TextCase& last = file_.cases.back();
    if (section_ != Section::kExpected) {
      const char* const missing = section_ == Section::kNone ? "input" : "expected";
      return Error(last.line, "the case has no section '" + std::string(missing) + "'");
    }
    last.expected = WithoutEndingNewlines(std::move(last.expected));
    return OkStatus();
  }

  std::string name_;
  int line_ = 0;
  Section section_ = Section::kNone;
  std::map<std::string, int> lines_;  // of the titles
  CaseFile file_;
};

bool IsUpdate() {
  const char* const value = std::getenv("DSRUN_UPDATE_CASES");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

StatusOr<CaseFile> ParseCases(std::string_view text, const std::string& name) {
  CaseParser parser(name);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    DS_RETURN_IF_ERROR(parser.Take(line));
    text.remove_prefix(line.size());
  }
  return parser.Finish();
}

std::string FormatCases(const CaseFile& file) {
  std::string text = file.preamble;
  for (const TextCase& each : file.cases) {
    if (&each != &file.cases.front()) text += "\n";
    text += each.head + each.expected + (each.expected.empty() ? "" : "\n");
  }
  return text;
}

std::vector<fs::path> ListCaseFiles(const std::string& subject) {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(DS_SOURCE_DIR) / "tests" / "cases" / subject)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  DS_CHECK(!files.empty());
  std::sort(files.begin(), files.end());
  return files;
}

void ExpectCases(const fs::path& file,
                 const std::function<std::string(const std::string& input)>& run) {
  const StatusOr<std::string> text = ReadFile(file);
  ASSERT_TRUE(text.ok()) << text.status().message();
  StatusOr<CaseFile> parsed = ParseCases(*text, file.string());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  for (TextCase& each : parsed->cases) {
    const std::string actual = WithoutEndingNewlines(run(each.input));
    if (IsUpdate()) {
      each.expected = actual;
      continue;
    }
    EXPECT_EQ(each.expected, actual)
        << file.string() << ":" << each.line << ": " << each.title
        << "\nDSRUN_UPDATE_CASES=1 in the environment of this test rewrites expected sections";
  }
  if (IsUpdate()) {
    EXPECT_TRUE(WriteFileAtomically(file, FormatCases(*parsed)).ok());
  }
}

std::string CaseFileName(const ::testing::TestParamInfo<fs::path>& info) {
  std::string name = info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace ds::testing
