// SPDX-License-Identifier: Apache-2.0
//
// plan/resume_wish.hpp: what the user asks for with --resume.
#pragma once

#include <filesystem>

#include "config/config.hpp"

namespace ddhost {

// The value of run.resume, with an absolute path.
struct ResumeWish {
  enum class From { none, newest, path };
  From from = From::none;
  std::filesystem::path checkpoint;  // of From::path
  // Of a run that has begun with such a checkpoint and starts again: it takes its newest, or this one if it has none.
  std::filesystem::path otherwise = {};
};
ResumeWish resume_wish(const UserConfig& user, const Config& config);

// Whether the run continues in the folder that it is resumed from, and appends to the files there.
bool goes_on_in(const std::filesystem::path& run_dir, const ResumeWish& wish);

}  // namespace ddhost
