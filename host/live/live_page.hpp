// SPDX-License-Identifier: Apache-2.0
//
// live/live_page.hpp: the page of a run that is going on (monitor.page, --page): report.html, with the newest state, in a
// browser on this machine. A thread of the launcher serves it, never a rank. It reads the run's folder and the numbers that
// the ranks write into their progress pages, and only while somebody looks at it.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "launch/launch.hpp"
#include "live/page_server.hpp"
#include "report/followed_run.hpp"

namespace ddhost {

class LivePage final : public Companion, private PageContent {
 public:
  // Listens at `address` ("127.0.0.1:0"), before any rank starts. Error: a bad address, a port in use.
  explicit LivePage(const std::string& address);
  ~LivePage() override;

  // With the secret, which only this user's browser should have.
  [[nodiscard]] const std::string& url() const { return url_; }

  // Around one launch of the ranks, of which a run that starts again has several.
  void begin(const RunView& run) override;
  void end() override;
  void forget_in_child() override;

  // After the folder has its last file: shows the last state to those who look at the page, and says that the run has ended.
  void show_end();

 private:
  [[nodiscard]] State state() const override { return state_; }
  void refresh() override;
  [[nodiscard]] std::string document() const override;
  [[nodiscard]] std::string_view script() const override;
  [[nodiscard]] CpuBudget::Ns cpu_time() const override;
  void serve();
  void follow(const std::filesystem::path& folder);
  void close_thread();
  [[nodiscard]] bool has_begun(const std::filesystem::path& folder) const;
  void show(std::string body);
  [[nodiscard]] Json numbers_of_ranks() const;

  Fd stop_;                         // readable: the thread ends
  std::atomic<bool> stops_{false};  // the same for what reads the folder
  std::string url_;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
  // Used by the thread while there is one.
  State state_;
  std::optional<RunView> view_;       // of the ranks; none between launches
  std::unique_ptr<FollowedRun> run_;  // from the run's first step on
};

}  // namespace ddhost
