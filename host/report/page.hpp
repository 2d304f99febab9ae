// SPDX-License-Identifier: Apache-2.0
//
// report/page.hpp: a run as one page of HTML: curves, memory, time, ranks, configuration, warnings, checkpoints. The page
// in a run's folder holds no script and loads nothing, and its policy (CSP) forbids both. It has less than 300 KB.
#pragma once

#include <filesystem>
#include <string>

#include "report/past_run.hpp"

namespace ddhost {

inline constexpr const char* kReportFile = "report.html";

std::string report_page(const PastRun& run);
// The sections of that page, with at most `points` in a curve.
std::string report_body(const PastRun& run, size_t points);

// Head and foot of a page. `title` and `body`: HTML. `script`: the address of the page's script on its own server, to which
// alone the page may connect; "": it has none and may connect to nothing.
std::string html_page(const std::string& title, const std::string& body, const std::string& script = "");

// Writes report.html into the folder of a run that has ended, in a child process. Returns "", or why there is none.
std::string write_report(const std::filesystem::path& folder);

}  // namespace ddhost
