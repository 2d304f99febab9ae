// SPDX-License-Identifier: Apache-2.0
#include "survey/hosts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/table.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/cluster/proof.hpp"
#include "launch/cluster/remote_agents.hpp"
#include "survey/answers.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using SteadyClock = HostTalk::Clock;

// A file beside run.dir, by which other hosts show that they share the disk. It lives as long as the object.
class Mark {
 public:
  explicit Mark(const fs::path& run_dir) : text_(Token::make().hex()) {
    std::string name = (existing_folder(run_dir) / ".ddhost-mark-XXXXXX").string();
    const Fd file(::mkostemp(name.data(), O_CLOEXEC));
    if (file.get() < 0) return;
    path_ = name;
    if (::write(file.get(), text_.data(), text_.size()) != static_cast<ssize_t>(text_.size())) {
      ::unlink(path_.c_str());
      path_.clear();
    }
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  // "": it can't be written, which the preparation of the run reports.
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const std::string text_;
  fs::path path_;
};

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return plain_text(text.substr(text.rfind('\n') + 1), 300);
}

// Why a host gave no answer.
std::string silence(const Host& host, HostTalk& talk, const SurveySettings& settings) {
  constexpr int kNotExecutable = 126, kNotFound = 127, kNoConnection = 255;
  const std::optional<int> code = talk.exit_code();
  const std::string said = talk.errors(), line = last_line(said), who = "host " + host.name + " ";
  if (!code)
    return ddh::str(who, "does not answer within ", settings.patience.count() / 1000,
                    " s; see whether it is up and whether a firewall lets its SSH port through");
  if (*code == kNoConnection) {
    for (const ConnectionText& known : settings.known_problems)
      if (said.find(known.says) != std::string::npos) return who + known.is + " (" + line + "); " + known.cure;
    return who + "can't be reached (" + line + "); connect to it by hand to see why";
  }
  if (*code == kNotFound || *code == kNotExecutable)
    return ddh::str(who, "has no ddhost that it can run as '", own_program(), "' (", line,
                    "); install it on all hosts by the same path");
  return ddh::str(who, "has another ddhost, which does not know this question (exit code ", *code,
                  line.empty() ? "" : ": ", line, "); install the same on all hosts");
}

std::string short_hash(const std::string& hash) { return hash.substr(0, 12); }

void judge(SurveyedHost& host, const Facts& own, const FactsWanted& wanted, const fs::path& run_dir) {
  const Facts& its = *host.facts;
  const std::string who = "host " + host.host.name + " ";
  const auto wrong = [&](const std::string& what) { host.problems.push_back(who + what); };
  if (its.program != own.program || its.program_hash != own.program_hash) host.program = "another";
  if (its.program != own.program)
    return wrong("has another ddhost (" + its.program + " instead of " + own.program +
                 "); install the same on all hosts");
  if (its.program_hash != own.program_hash)
    return wrong("has another build of ddhost at '" + own_program() + "' (sha256 " + short_hash(its.program_hash) +
                 " instead of " + short_hash(own.program_hash) + "); install the same on all hosts");
  if (!its.has_folder)
    return wrong("has no folder '" + wanted.folder.string() +
                 "', where the run was started; start it in a folder that all hosts share by the same path");
  if (!its.sees_mark)
    wrong("does not share the disk of run.dir ('" + existing_folder(run_dir).string() +
          "'), into which all hosts write; give a run.dir on a disk that all hosts share by the same path");
  for (size_t i = 0; i < wanted.plugins.size(); ++i) {
    const std::string &hash = its.hashes.at(i), &ours = own.hashes.at(i);
    if (hash != ours) host.plugins = hash.empty() ? "missing" : "another";
    if (hash.empty())
      wrong("has no plugin '" + wanted.plugins[i] + "'; install the same on all hosts");
    else if (hash != ours)
      wrong("has another plugin at '" + wanted.plugins[i] + "' (sha256 " + short_hash(hash) + " instead of " +
            short_hash(ours) + "); install the same on all hosts");
  }
  for (size_t i = 0; i < wanted.files.size(); ++i)
    if (!its.has_file.at(i))
      wrong("has no '" + wanted.files[i] + "', which this host has; put the data on a disk that all hosts share, or " +
            "copy it there by the same path");
}

// The first answer of a host. A signal that ends the program ends the wait, so that the mark does not stay.
std::optional<Json> first_answer(HostTalk& talk, SteadyClock::time_point until, const SignalsWhileJoining& waiting) {
  constexpr std::chrono::milliseconds kSlice{100};
  for (;;) {
    waiting.require_no_signal();
    const auto slice = std::min(until, SteadyClock::now() + kSlice);
    std::optional<Json> answer = talk.hear(slice);
    const bool has_ended = SteadyClock::now() < slice;
    if (answer || has_ended || slice == until) return answer;
  }
}

}  // namespace

Json ask(SurveyedHost& host, const Json& question) {
  constexpr std::chrono::seconds kPatience{30};
  host.talk->say(question);
  std::optional<Json> answer = host.talk->hear(SteadyClock::now() + kPatience);
  if (!answer)
    return {{"problem", "host " + host.host.name + " has ended its connection; connect to it by hand to see why"}};
  return *answer;
}

std::vector<SurveyedHost> survey_hosts(const SurveySettings& settings, bool own_talk) {
  const SignalsWhileJoining waiting;
  const Mark mark(settings.run_dir);
  const FactsWanted wanted{fs::current_path(), mark.path(), mark.text(), settings.plugins, settings.files};
  const auto until = SteadyClock::now() + settings.patience;
  std::vector<SurveyedHost> hosts;
  for (const Host& host : settings.hosts) {
    SurveyedHost& one = hosts.emplace_back();
    one.host = host;
    if (host.is_here && !own_talk) continue;
    one.talk = std::make_unique<HostTalk>(host, settings.ssh_config);
    one.talk->say({{kFactsQuestion, to_json(wanted)}, {"values", settings.values}});
  }
  const Facts own = own_facts(wanted);
  for (SurveyedHost& host : hosts) {
    if (host.talk == nullptr) {
      host.facts = own;
      continue;
    }
    const std::optional<Json> answer = first_answer(*host.talk, until, waiting);
    if (!answer || answer->contains("problem")) {
      host.problems.push_back(answer ? answer->at("problem").get<std::string>()
                                     : silence(host.host, *host.talk, settings));
      continue;
    }
    host.facts = facts_of(*answer);
    judge(host, own, wanted, settings.run_dir);
    const double before = seconds_since_1970();
    if (const Json its = ask(host, {{"clock", true}}); its.is_number())
      host.clock_s = its.get<double>() - (before + seconds_since_1970()) / 2;
  }
  return hosts;
}

std::string table_of(const std::vector<SurveyedHost>& hosts, size_t columns) {
  FittedTable table({"host", "ranks", "reachable", "version", "program", "plugins", "run.dir", "clock"});
  for (const SurveyedHost& host : hosts) {
    if (!host.facts) {
      table.add({host.host.name, std::to_string(host.host.slots), "no", "-", "-", "-", "-", "-"});
      continue;
    }
    const Facts& its = *host.facts;
    table.add({host.host.name, std::to_string(host.host.slots), host.host.is_here ? "here" : "yes",
               its.program.substr(0, its.program.find(' ')), host.program, host.plugins,
               its.sees_mark ? "shared" : "not shared", ddh::str(std::lround(host.clock_s * 1000), " ms")});
  }
  return table.text(columns);
}

}  // namespace ddhost
