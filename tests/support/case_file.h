#pragma once

// Table tests whose cases are text: files tests/cases/SUBJECT/*.txt. A case has a title, an input
// and the complete output that a user sees for it:
//
//     ### a batch that the ranks do not divide
//     Optional lines that say why the case matters.
//     --- input
//     {"train_batch_size": 3}
//     --- expected
//     error: ds.json: train_batch_size is 3, ...
//
// Lines before the first title describe the file. A section ends at the next line that starts with
// "### " or "--- ". The input keeps all of its lines; blank lines at the end of an expected section
// only separate cases.
//
// DSRUN_UPDATE_CASES=1 in the environment rewrites expected sections with the actual output.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::testing {

struct TextCase {
  std::string title;
  int line = 0;          // of the title, from 1
  std::string head;      // the lines of the file up to the expected section, unchanged
  std::string input;     // lines, each with its newline
  std::string expected;  // without newlines at its end
};

struct CaseFile {
  std::string preamble;  // the lines before the first title
  std::vector<TextCase> cases;
};

// Parses the text of a case file. An error names `name` and the line: a case without one of its
// sections, a section that is unknown or given twice, a title that is empty or given twice, or no
// case at all.
StatusOr<CaseFile> ParseCases(std::string_view text, const std::string& name);

// Returns the text of the file; the inverse of ParseCases but for blank lines between cases.
std::string FormatCases(const CaseFile& file);

// Returns the case files of a subject in tests/cases, sorted. Aborts where there is none, because
// a suite without parameters would pass.
std::vector<std::filesystem::path> ListCaseFiles(const std::string& subject);

// Fails the running test for each case whose `run(input)` differs from its expected section, with
// the title, the location and a diff.
void ExpectCases(const std::filesystem::path& file,
                 const std::function<std::string(const std::string& input)>& run);

// Names a test of a parameterised suite after its case file.
std::string CaseFileName(const ::testing::TestParamInfo<std::filesystem::path>& info);

}  // namespace ds::testing
