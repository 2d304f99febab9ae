// SPDX-License-Identifier: Apache-2.0
#include "live/live_page.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>

#include "base/profile.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "engine/services/memory/memory.hpp"
#include "launch/rank_numbers.hpp"
#include "live/address.hpp"
#include "plan/run_folder.hpp"
#include "report/page.hpp"

namespace ddhost {
namespace {

// Asks for the next state, and replaces the sections that have changed. Texts are escaped by the server, and scripts in them
// would not run: the parsed document is no part of the page, and the policy allows this file alone.
constexpr std::string_view kScript = R"js('use strict';
const run = document.getElementById('run'), link = document.getElementById('link');
let version = Number(run.dataset.version), shown = [], failures = 0;
function say(text, kind) { link.textContent = text; link.className = kind; }
function show(html) {
  const fresh = [...new DOMParser().parseFromString(html, 'text/html').body.children];
  fresh.forEach((section, i) => {
    if (shown[i] === section.outerHTML) return;
    shown[i] = section.outerHTML;
    const old = run.children[i];
    if (!old) return run.append(section);
    const open = [...old.querySelectorAll('details')].map(one => one.open);
    section.querySelectorAll('details').forEach((one, k) => { one.open = !!open[k]; });
    old.replaceWith(section);
  });
  while (run.children.length > fresh.length) run.lastElementChild.remove();
  shown.length = fresh.length;
}
function pause(ms) { return new Promise(done => setTimeout(done, ms)); }
async function follow() {
  for (;;) {
    try {
      const answer = await fetch('state?after=' + version, {cache: 'no-store', signal: AbortSignal.timeout(30000)});
      if (answer.status !== 200 && answer.status !== 204) throw new Error('status ' + answer.status);
      if (answer.status === 200) {
        show(await answer.text());
        version = Number(answer.headers.get('X-Version'));
        run.dataset.version = version;
      }
      failures = 0;
      if (answer.headers.get('X-Run') === 'ended') return say('The run has ended. This is its last state.', 'note');
      say('Live: this page follows the run.', '');
    } catch (error) {
      if (++failures === 3)
        say('The page gets no answer since ' + new Date().toLocaleTimeString() + ': the run has ended, or the ' +
            'connection to its host is broken. This is the last state that it sent.', 'note');
    }
    await pause(failures === 0 ? 500 : 1000 * Math.min(failures, 5));
  }
}
follow();
)js";

constexpr const char* kBeforeFirstStep =
    "<section>\n<h1>The run is being prepared</h1>\n<p>It has not begun its first step.</p></section>\n";

// "VmHWM:   123456 kB" of a process; 0: not known.
uint64_t peak_rss(pid_t pid) {
  std::ifstream in(ddh::str("/proc/", pid, "/status"));
  for (std::string word; in >> word;)
    if (uint64_t kib = 0; word == "VmHWM:" && in >> kib) return kib * 1024;
  return 0;
}

// The page must not end a run, also where there is no memory for the sentence.
void warn(const char* what, const std::exception& error) noexcept {
  try {
    print_sentence(ddh::str("warning: ", what, ": ", plain_text(sentence_of(error))));
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

LivePage::LivePage(const std::string& address) : stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (stop_.get() < 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't make a descriptor for the page of the run: ", std::strerror(errno),
              "; close other programs");
  PageAddress at = parse_page_address(address);
  Fd listener = listen_for_page(at);
  const std::string token = random_token();
  url_ = ddh::str("http://", at.text(), "/", token, "/");
  server_ = std::make_unique<PageServer>(std::move(listener), token, at.host, static_cast<PageContent&>(*this));
  show(kBeforeFirstStep);
}

LivePage::~LivePage() { end(); }

void LivePage::begin(const RunView& run) {
  view_.emplace(run);
  run_.reset();
  sigset_t all, before;  // signals are the supervisor's
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { serve(); });
    ::pthread_setname_np(thread_.native_handle(), "page");
  } catch (const std::exception& error) {
    warn("the page of the run is not shown, because the system gives no thread", error);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The run goes on without its page, whatever fails here.
void LivePage::serve() {
  try {
    server_->serve(stop_.get());
  } catch (const std::exception& error) {
    server_->forget();
    warn("the page of the run is closed, because it failed, and the run goes on", error);
  }
}

void LivePage::close_thread() {
  if (!thread_.joinable()) return;
  stops_ = true;
  uint64_t one = 1;
  static_cast<void>(::write(stop_.get(), &one, sizeof one));
  thread_.join();
  static_cast<void>(::read(stop_.get(), &one, sizeof one));
  stops_ = false;
}

void LivePage::end() {
  close_thread();
  try {
    if (view_ && !run_)
      if (const std::filesystem::path folder = folder_of(view_->record.folder());
          !folder.empty() && is_run_folder(folder))
        follow(folder);
  } catch (const std::exception&) {  // then the page has no last state
    run_.reset();
  }
  view_.reset();
}

void LivePage::forget_in_child() {
  server_->forget();
  stop_.reset();
}

void LivePage::show_end() {
  constexpr std::chrono::seconds kMostTime{2};
  if (!server_->is_viewed()) return;
  try {
    if (run_) {
      run_->run().is_alive = false;
      run_->catch_up(kMostTime);
      refresh();
    } else {
      show("<section>\n<h1>The run has ended</h1>\n<p>It has done no step.</p></section>\n");
    }
    state_.has_ended = true;
    server_->serve_last();
  } catch (const std::exception& error) {
    warn("the page does not show the last state of the run", error);
  }
}

void LivePage::follow(const std::filesystem::path& folder) {
  run_ = std::make_unique<FollowedRun>(folder, [this] { return stops_.load(); });
}

// Then rank 0 has opened what it writes to. Where this host has no ranks, the folder says so.
bool LivePage::has_begun(const std::filesystem::path& folder) const {
  for (int rank = view_->ranks.first; rank < view_->ranks.end(); ++rank)
    if (view_->progress.has_begun(rank)) return true;
  return view_->ranks.count == 0 && !folder.empty() && has_steps(folder);
}

void LivePage::refresh() {
  constexpr size_t kPoints = 300;
  try {
    if (!run_) {
      const std::filesystem::path folder = folder_of(view_->record.folder());
      if (!has_begun(folder)) return;
      follow(folder);
    }
    run_->update();
    PastRun& run = run_->run();
    if (view_ && !run_->has_summary()) run.summary = numbers_of_ranks();
    show(report_body(run, kPoints));
  } catch (const std::exception& error) {
    show("<section>\n<p class=\"bad\">The folder of the run can't be read: " + escaped(sentence_of(error)) +
         "</p></section>\n");
  }
}

void LivePage::show(std::string body) {
  if (state_.body && *state_.body == body) return;
  state_.body = std::make_shared<const std::string>(std::move(body));
  ++state_.version;
}

// As in the summary that the run writes at its end.
Json LivePage::numbers_of_ranks() const {
  Json ranks = ddhost::numbers_of_ranks(view_->progress, view_->ranks);
  for (Json& rank : ranks) {
    const int32_t pid = view_->progress.process(rank["rank"].get<int>());
    if (const uint64_t bytes = pid > 0 ? peak_rss(pid) : 0; bytes > 0) rank["peak_rss_bytes"] = bytes;
  }
  return {{"ranks", ranks}};
}

// Of the loader while it lives, which is the process of ranks that are threads, and of the first ranks.
CpuBudget::Ns LivePage::cpu_time() const {
  constexpr int kMostRanks = 64;
  CpuBudget::Ns sum{};
  const auto add = [&](pid_t pid) {
    clockid_t clock{};
    timespec time{};
    if (pid > 0 && ::clock_getcpuclockid(pid, &clock) == 0 && ::clock_gettime(clock, &time) == 0)
      sum += std::chrono::seconds(time.tv_sec) + CpuBudget::Ns(time.tv_nsec);
  };
  if (!view_) return sum;
  add(view_->loader);
  for (int rank = view_->ranks.first; rank < std::min(view_->ranks.end(), view_->ranks.first + kMostRanks); ++rank)
    add(view_->progress.process(rank));
  return sum;
}

std::string LivePage::document() const {
  const std::string name = run_ ? run_->run().name : "run";
  return html_page(escaped(name),
                   ddh::str("<p id=\"link\">This page needs its script to follow the run.</p>\n<main id=\"run\" "
                            "data-version=\"",
                            state_.version, "\">\n", *state_.body, "</main>\n"),
                   "live.js");
}

std::string_view LivePage::script() const { return kScript; }

}  // namespace ddhost
