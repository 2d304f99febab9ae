// SPDX-License-Identifier: Apache-2.0
//
// base/text.hpp: texts for people: texts of unknown origin made safe to print, numbers, and the name nearest to a mistyped
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddhost {

// The number of insertions, deletions, replacements and swaps of adjacent characters that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or "" if none is close enough.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// The shortest text that reads back as the same number: "10", "0.1", "1048576", "1e+30".
std::string number_text(double value);

// A number as Python takes it, in the form of JSON: "0.5" for ".5", "5.0" for "5.". Any other text as it is.
std::string json_number(const std::string& text);

// "512 bytes", "70.5 KB", "24.1 GB": powers of 1,000, as in the tables of memory.
std::string bytes_text(uint64_t bytes);

// Bytes of "5GB", "500MiB" or "1000000"; nullopt: it is no size.
std::optional<uint64_t> bytes_from_text(std::string_view text);
inline constexpr const char* kSizeForms = "give a number, alone or with KB, MB, GB, TB, KiB, MiB, GiB or TiB";

// "1 rank", "2 ranks", "2 micro-batches"
std::string counted(uint64_t count, std::string_view noun);

// The bytes of a user's value that a message shows, and those of a whole message.
constexpr size_t kShownValue = 200, kShownSentence = 1600;

// Bytes that are not UTF-8 and control characters (but \n and \t) become '?'. A text of more than `most` bytes loses its
// middle; its end stays, because it says how to fix the input.
std::string plain_text(std::string_view text, size_t most = kShownSentence);

// For a terminal: control characters (but \n and \t) and bytes that are not UTF-8 become \x1b, \xff. Nothing is left out.
std::string shown_text(std::string_view text);

// "an optimizer"
std::string with_article(const std::string& word);
// How many bytes at the end of `text` belong to a character whose other bytes may follow.
size_t unfinished_bytes(std::string_view text);

bool is_utf8(std::string_view text);

// Two hexadecimal digits for each byte, in lower case.
std::string hex_text(std::span<const uint8_t> bytes);

// A sentence for an exception that nobody has translated: the texts of libraries name no cure.
std::string sentence_of(const std::exception& error);

}  // namespace ddhost
