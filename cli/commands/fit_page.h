#pragma once

// FitPage fits a page of the manual to the width of a terminal, for `dsrun help PAGE`. Pages are
// written in Markdown for 80 columns, except for generated ones, which have tables of any width.

#include <cstddef>
#include <string>

namespace ds::cli {

// Wraps text, and shows each row of a table that is too wide as a list: the first cell, then a line
// with the name and the value of each other cell. Everything that fits stays as it is, and so do
// indented lines, which are code.
std::string FitPage(const std::string& page, std::size_t columns);

}  // namespace ds::cli
