// SPDX-License-Identifier: Apache-2.0
//
// The text files of a data set of KGAT. Numbers are decimal ids from 0, separated by single spaces.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "data.hpp"
#include "ddh/sdk/files/input_file.hpp"

namespace kgat {

namespace fs = std::filesystem;

namespace {

// Of ids that no list names: a larger one is taken for an error, because every smaller one needs memory too.
constexpr int64_t kMostUnlisted = int64_t{1} << 24, kMostUnlistedRelations = int64_t{1} << 16;

// Ids of a kind are below `n`.
struct Limit {
  int64_t n;
  std::string reason;
};

// The number of ids that <kind>_list.txt names: its lines without the header.
Limit limit_of(const fs::path& folder, const std::string& kind, const char* kinds, int64_t most_unlisted) {
  const fs::path list = folder / (kind + "_list.txt");
  std::error_code ignored;
  if (!fs::is_regular_file(list, ignored))
    return {most_unlisted,
            ddh::str("without ", list.filename().string(), " ids of ", kinds, " must be below ", most_unlisted)};
  std::ifstream in(list);
  int64_t lines = 0;
  for (std::string line; std::getline(in, line);) lines += line.empty() ? 0 : 1;
  const int64_t n = std::max<int64_t>(lines - 1, 0);
  return {n, ddh::str(list.filename().string(), " names only ", n, " ", kinds)};
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

  // Of the line that was read last.
  [[nodiscard]] int64_t number() const { return number_; }

  // What is wrong with the line that was read last, or with line `number`, and how to fix it.
  template <class... What>
  void refuse(const What&... what) {
    refuse_line(number_, what...);
  }
  template <class... What>
  void refuse_line(int64_t number, const What&... what) {
    const std::string sentence = ddh::str("line ", number, " of '", path_, "' ", what...);
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

struct Interactions {
  std::vector<std::vector<int32_t>> items;  // of each user, ascending and without repetitions; none without a line
  std::vector<int64_t> line;                // of each user; 0: none
};

// `train`: nullptr while it is read itself.
Interactions read_interactions(LineReader& reader, const Limit& users, const Limit& items, const Interactions* train) {
  Interactions out;
  for (std::vector<int32_t> ids; reader.next(ids);) {
    const int32_t user = ids.front();
    const auto u = static_cast<size_t>(user);
    const auto item = std::find_if(ids.begin() + 1, ids.end(), [&](int32_t i) { return i >= items.n; });
    if (user >= users.n) {
      reader.refuse("has user ", user, ", but ", users.reason);
    } else if (item != ids.end()) {
      reader.refuse("has item ", *item, ", but ", items.reason);
    } else if (ids.size() == 1 && train == nullptr) {
      reader.refuse("has user ", user, " without items to train on");
    } else if (train != nullptr && (u >= train->items.size() || train->items[u].empty())) {
      reader.refuse("has user ", user, ", who has no items in train.txt");
    } else {
      if (u >= out.items.size()) out.items.resize(u + 1), out.line.resize(u + 1);
      if (out.line[u] > 0) {
        reader.refuse("has user ", user, " a second time");
        continue;
      }
      out.line[u] = reader.number();
      out.items[u].assign(ids.begin() + 1, ids.end());
      std::sort(out.items[u].begin(), out.items[u].end());
      out.items[u].erase(std::unique(out.items[u].begin(), out.items[u].end()), out.items[u].end());
    }
  }
  return out;
}

std::vector<Triple> read_triples(LineReader reader, const Limit& entities, const Limit& relations) {
  std::vector<Triple> out;
  for (std::vector<int32_t> ids; reader.next(ids);) {
    if (ids.size() != 3) {
      reader.refuse("has ", ids.size(), " numbers; a triple is head, relation and tail");
    } else if (std::max(ids[0], ids[2]) >= entities.n) {
      reader.refuse("has entity ", std::max(ids[0], ids[2]), ", but ", entities.reason);
    } else if (ids[1] >= relations.n) {
      reader.refuse("has relation ", ids[1], ", but ", relations.reason);
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
  const Limit users = limit_of(folder, "user", "users", kMostUnlisted);
  const Limit items = limit_of(folder, "item", "items", kMostUnlisted);
  LineReader train_file(host, path("train.txt"), skip_bad_lines), test_file(host, path("test.txt"), skip_bad_lines);
  Interactions train = read_interactions(train_file, users, items, nullptr);
  Interactions test = read_interactions(test_file, users, items, &train);
  test.items.resize(train.items.size());
  KgatData data;
  data.kg =
      read_triples({host, path("kg_final.txt"), skip_bad_lines}, limit_of(folder, "entity", "entities", kMostUnlisted),
                   limit_of(folder, "relation", "relations", kMostUnlistedRelations));
  data.n_items = std::max(largest(train.items), largest(test.items)) + 1;
  data.n_entities = data.n_items;
  for (const Triple& t : data.kg) {
    data.n_entities = std::max<int64_t>(data.n_entities, std::max(t.head, t.tail) + 1);
    data.n_relations = std::max<int64_t>(data.n_relations, t.relation + 1);
  }
  for (size_t u = 0; u < train.items.size(); ++u) {
    if (train.items[u].empty() || static_cast<int64_t>(train.items[u].size()) < data.n_items) continue;
    train_file.refuse_line(train.line[u], "has user ", u, " with all items, so no item can be drawn that it has not");
    train.items[u].clear(), test.items[u].clear();
  }
  if (largest(train.items) < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "'", path("train.txt"), "' has no user with items; give pairs to train on");
  data.train = std::move(train.items), data.test = std::move(test.items);
  return data;
}

}  // namespace kgat
