// SPDX-License-Identifier: Apache-2.0
//
// A process's memory by kind of mapping, from lines like those of /proc/self/smaps.
#include "engine/record/process_memory.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

using namespace ddhost;

namespace {

// A library with its variables, a shared heap, a data file, a region of ranks, a thread's stack behind its guard, an arena, a
// pool of huge pages and code that was made at run time.
const char* const kSmaps = R"(1000-2000 r-xp 00000000 08:01 11                       /usr/lib/lib a.so
Rss:                  40 kB
Pss:                  20 kB
2000-3000 rw-p 00001000 08:01 11                       /usr/lib/lib a.so
Rss:                   4 kB
Pss:                   4 kB
3000-4000 rw-p 00000000 00:00 0
Rss:                   8 kB
Pss:                   8 kB
9000-a000 rw-p 00000000 00:00 0                        [heap]
Rss:                 100 kB
Pss:                  60 kB
Shared_Clean:          0 kB
Shared_Dirty:         80 kB
Private_Clean:         0 kB
Private_Dirty:        20 kB
VmFlags: rd wr mr mw me ac
b000-c000 r--s 00000000 08:01 12                       /data/train.bin
Rss:                  16 kB
Pss:                  16 kB
c000-d000 rw-s 00000000 00:01 13                       /dev/zero (deleted)
Rss:                  64 kB
Pss:                  32 kB
10000-11000 ---p 00000000 00:00 0
Rss:                   0 kB
Pss:                   0 kB
11000-91000 rw-p 00000000 00:00 0
Rss:                  12 kB
Pss:                  12 kB
a0000-b0000 rw-p 00000000 00:00 0
Rss:                 200 kB
Pss:                 200 kB
Private_Dirty:       200 kB
c0000-d0000 rw-p 00000000 00:00 0
Rss:                 400 kB
Pss:                 400 kB
VmFlags: rd wr mr mw me ac sd hg
e0000-f0000 rwxp 00000000 00:00 0
Rss:                   4 kB
Pss:                   4 kB
)";

}  // namespace

TEST_CASE("mappings are libraries, stacks, files of data or anonymous memory") {
  std::istringstream in(kSmaps);
  const ProcessMemory memory = process_memory_of(in);
  constexpr uint64_t kKib = 1024;
  CHECK(memory.libraries == 36 * kKib);
  CHECK(memory.stacks == 12 * kKib);
  CHECK(memory.files == 16 * kKib);
  CHECK(memory.anon_rss == 300 * kKib);
  CHECK(memory.shared_anon_rss == 80 * kKib);
  CHECK(memory.shared_anon == 40 * kKib);
  CHECK(memory.shared_memory == 32 * kKib);
  CHECK(memory.huge == 400 * kKib);
  CHECK(memory.pss_bytes == 756 * kKib);
}

TEST_CASE("the mappings of this process add up to what the system says") {
  std::ifstream rollup("/proc/self/smaps_rollup");
  if (!rollup) return;
  const ProcessMemory memory = process_memory();
  CHECK(memory.libraries > 0);
  CHECK(memory.stacks > 0);
  CHECK(memory.anon_rss > 0);
  CHECK(memory.libraries + memory.files + memory.stacks + memory.shared_anon <= memory.pss_bytes);
}
