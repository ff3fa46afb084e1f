#include "os/plan_board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "os/fd.h"
#include "os/meeting_store.h"

namespace rubato::os {

namespace {

[[noreturn]] void fail(const char* doing, const std::string& path) {
  const std::string hint = errno == ENOSPC ? "free some space there, or name another folder with TMPDIR" : "";
  throw Error(ErrorCode::kFailed, fmt::format("cannot {} '{}': {}", doing, path, std::strerror(errno)), path, hint);
}

class RealPlanBoard final : public PlanBoard {
 public:
  RealPlanBoard(Runtime& runtime, Files& files, std::function<void()> on_report)
      : files_(files),
        on_report_(std::move(on_report)),
        path_(files.make_temporary_folder("rubato_plan_")),
        events_(runtime.io()) {
    // Workers map this file: it stays the same one.
    word_ = Fd(::open((path_ + "/generation").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!word_) fail("make", path_ + "/generation");
    write_word(0);
    Fd watch(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!watch || ::inotify_add_watch(watch.get(), path_.c_str(), IN_MOVED_TO) < 0) fail("watch", path_);
    events_.assign(watch.release());
    listen();
  }
  ~RealPlanBoard() override {
    alive_.reset();
    files_.remove_tree(path_);
  }
  const std::string& path() const override { return path_; }

  // Not durable: no worker outlives this process, so nobody reads it after a crash.
  void publish(uint64_t generation, const std::string& plan) override {
    const std::string beside = path_ + "/plan.json.new";
    {
      const Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      if (!file) fail("write", beside);
      for (size_t done = 0; done < plan.size();) {
        const ssize_t n = ::write(file.get(), plan.data() + done, plan.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("write", beside);
        done += static_cast<size_t>(n);
      }
    }
    if (::rename(beside.c_str(), (path_ + "/plan.json").c_str()) != 0) fail("rename", beside);
    write_word(generation);
  }

  std::optional<std::string> report(const std::string& worker) override {
    return files_.read(fmt::format("{}/worker-{}.json", path_, worker));
  }

 private:
  void write_word(uint64_t generation) {
    std::array<char, 8> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(generation >> (8 * i));
    if (::pwrite(word_.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      fail("write", path_ + "/generation");
    }
  }

  void listen() {
    events_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                         if (error || alive.expired()) return;
                         if (take()) on_report_();
                         listen();
                       });
  }

  // Whether one of the renames was a report.
  bool take() {
    bool reported = false;
    alignas(inotify_event) char block[4096];
    const ssize_t got = ::read(events_.native_handle(), block, sizeof block);
    for (ssize_t at = 0; at < got;) {
      inotify_event event;
      std::memcpy(&event, block + at, sizeof event);
      const std::string_view name(event.len > 0 ? block + at + sizeof event : "");
      reported = reported || name.starts_with("worker-") || (event.mask & IN_Q_OVERFLOW) != 0;
      at += static_cast<ssize_t>(sizeof event + event.len);
    }
    return reported;
  }

  Files& files_;
  std::function<void()> on_report_;
  std::string path_;
  Fd word_;
  boost::asio::posix::stream_descriptor events_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace

std::unique_ptr<PlanBoard> RealInPlaceHost::make_board(std::function<void()> on_report) {
  return std::make_unique<RealPlanBoard>(runtime_, files_, std::move(on_report));
}

std::unique_ptr<MeetingStore> RealInPlaceHost::open_store(const std::string& token, bool loopback) {
  return std::make_unique<RealMeetingStore>(runtime_, token, loopback);
}

}  // namespace rubato::os
