// SPDX-License-Identifier: Apache-2.0
//
// The text files of a data set of KGAT. Numbers are decimal ids from 0, separated by single spaces.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "data.hpp"
#include "ddh/sdk/input_file.hpp"

namespace kgat {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int32_t>::max();

// The number of ids that a list names: its lines without the header. Without a file any id is allowed.
int64_t ids_of_list(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return kNoLimit;
  std::ifstream in(path);
  int64_t lines = 0;
  for (std::string line; std::getline(in, line);) lines += line.empty() ? 0 : 1;
  return std::max<int64_t>(lines - 1, 0);
}

// Reads a file line by line. A line that can't be used ends the run, or is skipped and counted.
class LineReader {
 public:
  LineReader(const ddh::Host& host, std::string path, bool skips)
      : host_(host),
        path_(std::move(path)),
        skips_(skips),
        in_(ddh::read_input(path_, {"data file", "a data set of KGAT has train.txt, test.txt and kg_final.txt"})) {}
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader() {
    if (n_skipped_ > 0)
      host_.log(DDH_LOG_WARN, "skipped ", n_skipped_, n_skipped_ == 1 ? " line" : " lines", " of '", path_,
                "': ", first_skipped_);
  }

  // The ids of the next line that has some; false at the end.
  bool next(std::vector<int32_t>& ids) {
    while (std::getline(in_, line_)) {
      ++number_;
      if (parse(ids)) return true;
    }
    return false;
  }

  // Of the line that was read last: what is wrong with it, and how to fix it.
  template <class... What>
  void refuse(const What&... what) {
    const std::string sentence = ddh::str("line ", number_, " of '", path_, "' ", what...);
    if (!skips_)
      ddh::fail(DDH_DATA_LOSS, sentence, "; correct it, or set model.skip_bad_lines=true to leave such lines out");
    if (n_skipped_++ == 0) first_skipped_ = sentence;
  }

 private:
  bool parse(std::vector<int32_t>& ids) {
    ids.clear();
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    const char *at = line_.data(), *const end = at + line_.size();
    while (at != end) {
      while (at != end && (*at == ' ' || *at == '\t')) ++at;
      if (at == end) break;
      const char* const word_end = std::find_if(at, end, [](char c) { return c == ' ' || c == '\t'; });
      int32_t id = 0;
      const auto [stopped, error] = std::from_chars(at, word_end, id);
      if (error != std::errc() || stopped != word_end || id < 0) {
        refuse("has '", std::string(at, word_end).substr(0, 40), "', which is no id from 0 to 2147483647");
        return false;
      }
      ids.push_back(id);
      at = word_end;
    }
    if (ids.empty()) refuse("is empty");
    return !ids.empty();
  }

  const ddh::Host& host_;
  const std::string path_;
  const bool skips_;
  std::istringstream in_;
  std::string line_;
  int64_t number_ = 0, n_skipped_ = 0;
  std::string first_skipped_;
};

struct Limits {
  int64_t users, items;
};

// Items of each user, ascending and without repetitions; users that have no line have none.
std::vector<std::vector<int32_t>> read_interactions(LineReader reader, const Limits& limits, bool needs_items) {
  std::vector<std::vector<int32_t>> out;
  std::vector<bool> is_read;
  for (std::vector<int32_t> ids; reader.next(ids);) {
    const int32_t user = ids.front();
    const auto item = std::find_if(ids.begin() + 1, ids.end(), [&](int32_t i) { return i >= limits.items; });
    if (user >= limits.users) {
      reader.refuse("has user ", user, ", but user_list.txt names only ", limits.users, " users");
    } else if (item != ids.end()) {
      reader.refuse("has item ", *item, ", but item_list.txt names only ", limits.items, " items");
    } else if (ids.size() == 1 && needs_items) {
      reader.refuse("has user ", user, " without items to train on");
    } else {
      const auto u = static_cast<size_t>(user);
      if (u >= out.size()) out.resize(u + 1), is_read.resize(u + 1, false);
      if (is_read[u]) {
        reader.refuse("has user ", user, " a second time");
        continue;
      }
      is_read[u] = true;
      out[u].assign(ids.begin() + 1, ids.end());
      std::sort(out[u].begin(), out[u].end());
      out[u].erase(std::unique(out[u].begin(), out[u].end()), out[u].end());
    }
  }
  return out;
}

std::vector<Triple> read_triples(LineReader reader, int64_t entities, int64_t relations) {
  std::vector<Triple> out;
  for (std::vector<int32_t> ids; reader.next(ids);) {
    if (ids.size() != 3) {
      reader.refuse("has ", ids.size(), " numbers; a triple is head, relation and tail");
    } else if (std::max(ids[0], ids[2]) >= entities) {
      reader.refuse("has entity ", std::max(ids[0], ids[2]), ", but entity_list.txt names only ", entities,
                    " entities");
    } else if (ids[1] >= relations) {
      reader.refuse("has relation ", ids[1], ", but relation_list.txt names only ", relations, " relations");
    } else {
      out.push_back({ids[0], ids[1], ids[2]});
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

int64_t largest(const std::vector<std::vector<int32_t>>& items) {
  int64_t out = -1;
  for (const std::vector<int32_t>& of_user : items)
    if (!of_user.empty()) out = std::max<int64_t>(out, of_user.back());
  return out;
}

}  // namespace

KgatData read_data(const ddh::Host& host, const std::string& folder, bool skip_bad_lines) {
  const auto path = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const Limits limits{ids_of_list(path("user_list.txt")), ids_of_list(path("item_list.txt"))};
  KgatData data;
  data.train = read_interactions({host, path("train.txt"), skip_bad_lines}, limits, true);
  data.test = read_interactions({host, path("test.txt"), skip_bad_lines}, limits, false);
  data.kg = read_triples({host, path("kg_final.txt"), skip_bad_lines}, ids_of_list(path("entity_list.txt")),
                         ids_of_list(path("relation_list.txt")));
  const size_t n_users = std::max(data.train.size(), data.test.size());
  data.train.resize(n_users), data.test.resize(n_users);
  data.n_items = std::max(largest(data.train), largest(data.test)) + 1;
  data.n_entities = data.n_items;
  for (const Triple& t : data.kg) {
    data.n_entities = std::max<int64_t>(data.n_entities, std::max(t.head, t.tail) + 1);
    data.n_relations = std::max<int64_t>(data.n_relations, t.relation + 1);
  }
  if (largest(data.train) < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "'", path("train.txt"), "' has no user with items; give pairs to train on");
  for (size_t u = 0; u < n_users; ++u) {
    if (static_cast<int64_t>(data.train[u].size()) == data.n_items)
      ddh::fail(DDH_INVALID_ARGUMENT, "user ", u, " of '", path("train.txt"),
                "' has all items, so no item can be drawn that it has not; take the user out");
  }
  return data;
}

}  // namespace kgat
