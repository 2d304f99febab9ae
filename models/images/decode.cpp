// SPDX-License-Identifier: Apache-2.0
//
// PNG files by libpng, JPEG files by libjpeg-turbo.
#include <csetjmp>
#include <cstdio>

// After <cstdio>, which it needs.
#include <jpeglib.h>
#include <png.h>

// After <jpeglib.h>, on which its numbers depend.
#include <jerror.h>

#include "image_set.hpp"

namespace images {
namespace {

constexpr const char* kTooManyPixels = "its header announces too many pixels";

[[noreturn]] void fail_torn(const std::string& path, const std::string& why) {
  ddh::fail(DDH_DATA_LOSS, "image '", path, "' cannot be decoded: ", why, "; replace or remove it");
}

// (height, width, channels) -> (channels, height, width)
Image planar(int64_t channels, int64_t height, int64_t width, const std::vector<uint8_t>& interleaved) {
  Image out{channels, height, width, std::vector<uint8_t>(interleaved.size())};
  const int64_t numel = height * width;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < numel; ++i)
      out.pixels[static_cast<size_t>(c * numel + i)] = interleaved[static_cast<size_t>(i * channels + c)];
  }
  return out;
}

Image decode_png(const std::string& path, const std::vector<uint8_t>& bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) fail_torn(path, image.message);
  const bool colour = (image.format & PNG_FORMAT_FLAG_COLOR) != 0;
  image.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  if (uint64_t{image.width} * image.height > kMostPixels) {
    png_image_free(&image);
    fail_torn(path, kTooManyPixels);
  }
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  const png_color black{0, 0, 0};  // background of transparent pixels
  if (png_image_finish_read(&image, &black, pixels.data(), 0, nullptr) == 0) fail_torn(path, image.message);
  return planar(colour ? 3 : 1, image.height, image.width, pixels);
}

// libjpeg reports errors by a jump, so nothing in read_jpeg has a destructor between setjmp and its end.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

void jump_back(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->back, 1);
}

// Keeps the first warning about missing or damaged data, which libjpeg fills with gray. Superfluous bytes and odd values in
// headers, which many files have, lose no pixel.
void keep_warning(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  const bool is_harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
                           code == JWRN_NOT_SEQUENTIAL;
  if (level >= 0 || is_harmless) return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  if (errors->base.num_warnings++ == 0) info->err->format_message(info, errors->text);
}

struct JpegPixels {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> interleaved;
};

struct JpegReader {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  JpegReader() {
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = jump_back;
    errors.base.emit_message = keep_warning;
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info); }
};

// What is wrong with the file; nullptr: nothing.
const char* read_jpeg(const std::vector<uint8_t>& bytes, JpegReader& reader, JpegPixels& out) {
  auto& [info, errors] = reader;
  if (setjmp(errors.back) != 0) return errors.text;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, bytes.data(), bytes.size());
  jpeg_read_header(&info, TRUE);
  if (uint64_t{info.image_width} * info.image_height > kMostPixels) return kTooManyPixels;
  info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&info);
  out.channels = info.output_components, out.height = info.output_height, out.width = info.output_width;
  out.interleaved.resize(size_t{info.output_height} * info.output_width * static_cast<size_t>(info.output_components));
  const size_t row_bytes = size_t{info.output_width} * static_cast<size_t>(info.output_components);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = out.interleaved.data() + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return errors.base.num_warnings == 0 ? nullptr : errors.text;
}

Image decode_jpeg(const std::string& path, const std::vector<uint8_t>& bytes) {
  JpegReader reader;
  JpegPixels pixels;
  if (const char* wrong = read_jpeg(bytes, reader, pixels); wrong != nullptr) fail_torn(path, wrong);
  return planar(pixels.channels, pixels.height, pixels.width, pixels.interleaved);
}

}  // namespace

Image decode(const std::string& path) {
  const std::vector<uint8_t> bytes = read_unpacked(path);
  if (bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0) return decode_png(path, bytes);
  if (bytes.size() >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF) return decode_jpeg(path, bytes);
  fail_torn(path, bytes.empty() ? "it is empty" : "it is neither a PNG nor a JPEG file");
}

}  // namespace images
