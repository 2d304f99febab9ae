// SPDX-License-Identifier: Apache-2.0
//
// report/page.hpp: a run as one page of HTML: curves, memory, time, ranks, configuration, warnings, checkpoints. The page
// holds no script and loads nothing, and its policy (CSP) forbids both. It has less than 300 KB.
#pragma once

#include <filesystem>
#include <string>

#include "report/past_run.hpp"

namespace ddhost {

inline constexpr const char* kReportFile = "report.html";

std::string report_page(const PastRun& run);

// Head and foot of a page. `title` and `body`: HTML.
std::string html_page(const std::string& title, const std::string& body);

// Writes report.html into the folder of a run that has ended, in a child process. Returns "", or why there is none.
std::string write_report(const std::filesystem::path& folder);

}  // namespace ddhost
