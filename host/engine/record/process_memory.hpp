// SPDX-License-Identifier: Apache-2.0
//
// engine/record/process_memory.hpp: what the system counts for a process, by kind of mapping (/proc/self/smaps). PSS: a page
// that n processes map counts as 1/n of a page.
#pragma once

#include <cstdint>
#include <istream>

namespace ddhost {

struct ProcessMemory {
  int64_t pid = 0;             // ranks that are threads of one process have the same
  uint64_t pss_bytes = 0;      // 0: not known (an old Linux, or no /proc)
  uint64_t libraries = 0;      // of these: files with code, their variables and relocated pages, code made at run time
  uint64_t files = 0;          // other files, of data
  uint64_t stacks = 0;         // of all threads
  uint64_t shared_anon = 0;    // memory that the loader had allocated, and that other ranks have too
  uint64_t shared_memory = 0;  // regions that ranks share
  uint64_t huge = 0;           // anonymous memory for which huge pages were asked (madvise): large blocks and pools
  // Resident, not PSS: anonymous memory without stacks and `huge`, and the part that is shared.
  uint64_t anon_rss = 0, shared_anon_rss = 0;
};

// The system visits each page for it, which takes milliseconds per gigabyte.
ProcessMemory process_memory();
// The same from a text like that of /proc/self/smaps.
ProcessMemory process_memory_of(std::istream& smaps);

// Resident anonymous memory of the process at three times.
struct AnonMarks {
  uint64_t at_start = 0;                       // when the rank began: what libraries had allocated
  uint64_t before_model = 0, after_model = 0;  // the model opens its data sets in between
};

}  // namespace ddhost
