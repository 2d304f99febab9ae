// SPDX-License-Identifier: Apache-2.0
#include "ffmpeg.hpp"

#include <dlfcn.h>

#include <array>

#include "ddh/sdk/plugin.hpp"
#include "video_file.hpp"

namespace images {
namespace {

// `version`: of the headers, whose structures must be those of the library.
void* open_library(const std::string& folder, const char* name, const char* version_name, unsigned version) {
  const unsigned major = version >> 16;
  const std::string file = ddh::str(folder, "lib", name, ".so.", major);
  void* const opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) ddh::fail(DDH_UNAVAILABLE, "a library of FFmpeg was not found (", dlerror(), ")");
  auto* const version_of = reinterpret_cast<unsigned (*)()>(dlsym(opened, version_name));
  if (version_of == nullptr) ddh::fail(DDH_UNAVAILABLE, "'", file, "' lacks ", version_name, ": it is not FFmpeg's");
  if (version_of() >> 16 != major)
    ddh::fail(DDH_UNAVAILABLE, "'", file, "' has version ", version_of() >> 16, ", but this build needs ", major);
  return opened;
}

template <class Function>
void take(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) ddh::fail(DDH_UNAVAILABLE, "a library of FFmpeg lacks ", name, ", so it is incomplete");
}

}  // namespace

// No library is closed again: it stays for the process, and a later call gets it at once.
std::shared_ptr<const Ffmpeg> open_ffmpeg(const std::string& folder) {
  const auto av = std::make_shared<Ffmpeg>();
  void* library = nullptr;
#define DDH_FFMPEG_TAKE(F) take(library, #F, av->F);
  library = open_library(folder, "avutil", "avutil_version", LIBAVUTIL_VERSION_INT);
  DDH_AVUTIL_FUNCTIONS(DDH_FFMPEG_TAKE)
  library = open_library(folder, "avcodec", "avcodec_version", LIBAVCODEC_VERSION_INT);
  DDH_AVCODEC_FUNCTIONS(DDH_FFMPEG_TAKE)
  library = open_library(folder, "avformat", "avformat_version", LIBAVFORMAT_VERSION_INT);
  DDH_AVFORMAT_FUNCTIONS(DDH_FFMPEG_TAKE)
  library = open_library(folder, "swscale", "swscale_version", LIBSWSCALE_VERSION_INT);
  DDH_SWSCALE_FUNCTIONS(DDH_FFMPEG_TAKE)
#undef DDH_FFMPEG_TAKE
  av->av_log_set_level(AV_LOG_QUIET);
  return av;
}

std::string Ffmpeg::text_of(int error) const {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(error, text.data(), text.size());
  return text.data();
}

}  // namespace images
