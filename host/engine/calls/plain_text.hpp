// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/plain_text.hpp: text of unknown origin in messages: valid UTF-8, without control characters, and of
// limited length.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace ddhost {

// The bytes of a user's value that a message shows, and those of a whole message.
constexpr size_t kShownValue = 200, kShownSentence = 1600;

// Bytes that are not UTF-8 and control characters (but \n and \t) become '?'. A text of more than `most` bytes loses its
// middle; its end stays, because it says how to fix the input.
std::string plain_text(std::string_view text, size_t most = kShownSentence);

// For a terminal: control characters (but \n and \t) and bytes that are not UTF-8 become \x1b, \xff. Nothing is left out.
std::string shown_text(std::string_view text);
// How many bytes at the end of `text` belong to a character whose other bytes may follow.
size_t unfinished_bytes(std::string_view text);

bool is_utf8(std::string_view text);

// A sentence for an exception that nobody has translated: the texts of libraries name no cure.
std::string sentence_of(const std::exception& error);

}  // namespace ddhost
