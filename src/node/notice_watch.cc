#include "node/notice_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "agent/notice_file.h"
#include "aws/metadata.h"
#include "core/scope.h"
#include "core/text.h"
#include "rest/url.h"

namespace rubato::node {

namespace {

constexpr Duration kFilePoll = 1s;
constexpr Duration kCommandPoll = 5s;
constexpr Duration kCommandMax = 30s;
constexpr size_t kCommandOutputMax = size_t{64} << 10;
// EC2 tells it two minutes before, and asks to look every five seconds. A machine without the service is asked seldom.
constexpr Duration kEc2Poll = 5s;
constexpr Duration kAbsentPoll = 60s;
// Google's long polls end with the old value after so long.
constexpr Duration kGcpWait = 60s;
constexpr Duration kGcpAnswer = 15s;
constexpr Duration kGcpTryAgain = 2s;
// What Google promises between the word and the end.
constexpr Duration kGcpPreempted = 30s;
constexpr Duration kGcpMaintenance = 60s;

class Watcher {
 public:
  Watcher(World& world, NoticeWatchSettings settings, Channel<MachineNotice>& notices)
      : world_(world), settings_(std::move(settings)), notices_(notices), scope_(world.clock.loop()) {}

  Task<void> run() {
    const NoticeSource& source = settings_.source;
    if (source.service == NoticeService::kEc2) scope_.spawn(watch_ec2());
    if (source.service == NoticeService::kGcp) {
      scope_.spawn(watch_gcp("instance/preempted", "TRUE", "preemption notice", kGcpPreempted));
      scope_.spawn(watch_gcp("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", "maintenance notice",
                             kGcpMaintenance));
    }
    if (!source.file.empty()) scope_.spawn(watch_file());
    if (!source.command.empty()) scope_.spawn(watch_command());
    Event never(world_.clock.loop());
    co_await never.wait();
  }

 private:
  Task<void> sleep(Duration length) { co_await Sleep(world_.clock.loop(), world_.clock.now() + length); }

  void report(const std::string& what, agent::Notice notice) {
    MachineNotice out;
    out.what = what;
    out.notice = std::move(notice);
    notices_.push(std::move(out));
  }

  // A file that is there before anybody looks is a notice all the same: agents may start anew meanwhile.
  Task<void> watch_file() {
    std::string path = settings_.source.file;
    if (const size_t at = path.find(kNodeMark); at != std::string::npos)
      path.replace(at, std::string(kNodeMark).size(), settings_.node.value);
    agent::NoticeFile file(world_, path);
    while (true) {
      if (std::optional<agent::Notice> notice = file.find()) {
        report("notice in " + path, std::move(*notice));
        co_return;
      }
      co_await sleep(kFilePoll);
    }
  }

  Task<void> watch_command() {
    while (true) {
      const std::optional<std::string> text = co_await run_command();
      if (text) {
        report("notice of a command", agent::parse_notice(*text, world_.clock.wall()));
        co_return;
      }
      co_await sleep(kCommandPoll);
    }
  }

  // What it prints when it ends with 0; else nullopt.
  Task<std::optional<std::string>> run_command() {
    SpawnSpec spec;
    spec.argv = {"/bin/sh", "-c", settings_.source.command};
    for (const auto& [name, value] : settings_.environment) spec.env.push_back(name + "=" + value);
    spec.env.push_back("RUBATO_NODE=" + settings_.node.value);
    spec.in = InputSource::kNull;
    spec.out.kind = OutputTarget::Kind::kPipe;
    spec.err.kind = OutputTarget::Kind::kNull;
    std::unique_ptr<Process> process;
    try {
      process = world_.processes.spawn(spec);
    } catch (const Error& error) {
      complain("the command for notices does not start: " + error.message);
      co_return std::nullopt;
    }
    Task<std::string> output = read_output(*process);
    const std::optional<std::string> text =
        co_await with_deadline(world_.clock.loop(), world_.clock.now() + kCommandMax, std::move(output));
    if (!text) {
      complain(fmt::format("the command for notices did not end within {}", format_duration(kCommandMax)));
      co_return std::nullopt;
    }
    const ExitStatus status = co_await process->wait();
    if (!status.ok()) co_return std::nullopt;
    co_return *text;
  }

  static Task<std::string> read_output(Process& process) {
    std::string text;
    while (true) {
      const std::optional<OutputChunk> chunk = co_await process.output().pop();
      if (!chunk) co_return text;
      if (text.size() < kCommandOutputMax) text += chunk->bytes;
    }
  }

  Task<void> watch_ec2() {
    bool told = !settings_.source.rebalance;
    aws::Metadata metadata(world_, settings_.environment);
    std::string last;
    while (true) {
      const std::optional<std::string> action = co_await ask_ec2(metadata, "spot/instance-action");
      if (action && *action != last) {
        last = *action;
        report("spot notice", agent::parse_notice(*action, world_.clock.wall()));
      }
      if (!told && !action) {
        const std::optional<std::string> advice = co_await ask_ec2(metadata, "events/recommendations/rebalance");
        // Its time is when it was given, not when the machine goes: nobody knows that.
        if (advice) report("rebalance recommendation", agent::Notice{});
        told = advice.has_value();
      }
      const bool absent = metadata.absent();
      if (absent) metadata.try_again();
      co_await sleep(absent ? kAbsentPoll : kEc2Poll);
    }
  }

  Task<std::optional<std::string>> ask_ec2(aws::Metadata& metadata, std::string path) {
    try {
      co_return co_await metadata.get("/latest/meta-data/" + path);
    } catch (const Error& error) {
      complain("EC2's metadata service: " + error.message);
      co_return std::nullopt;
    }
  }

  Task<void> watch_gcp(std::string path, std::string value, std::string what, Duration notice) {
    std::string etag;
    while (true) {
      const std::optional<std::string> now = co_await ask_gcp(path, etag);
      if (now && trim(*now) == value) {
        agent::Notice found;
        found.deadline = world_.clock.wall() + std::chrono::duration_cast<std::chrono::microseconds>(notice);
        report(what, std::move(found));
        co_return;
      }
      if (!now) {
        etag.clear();
        co_await sleep(kGcpTryAgain);
      }
    }
  }

  // The first answer is the value as it is; with its tag, the next one comes when it has changed.
  Task<std::optional<std::string>> ask_gcp(std::string path, std::string& etag) {
    const auto host = settings_.environment.find("GCE_METADATA_HOST");
    const std::string named = host == settings_.environment.end() ? "metadata.google.internal" : host->second;
    try {
      const rest::Url url = rest::parse_url("http://" + named, "GCE_METADATA_HOST");
      HttpRequest request;
      request.target = "/computeMetadata/v1/" + path;
      if (!etag.empty()) {
        request.target +=
            fmt::format("?wait_for_change=true&timeout_sec={}&last_etag={}", kGcpWait / 1s, rest::percent_encode(etag));
      }
      request.headers["metadata-flavor"] = "Google";
      const Instant deadline = world_.clock.now() + kGcpWait + kGcpAnswer;
      TlsFiles plain;
      Endpoint endpoint = url.endpoint;
      const HttpResponse response =
          co_await world_.network.call(std::move(endpoint), std::move(plain), std::move(request), deadline);
      if (response.status != 200) co_return std::nullopt;
      const auto tag = response.headers.find("etag");
      // Without a tag there is no waiting: it is asked anew after a while.
      if (tag == response.headers.end()) co_await sleep(kGcpTryAgain);
      etag = tag == response.headers.end() ? "" : tag->second;
      co_return response.body;
    } catch (const Error& error) {
      complain("Google's metadata service: " + error.message);
    }
    co_return std::nullopt;
  }

  // Once each.
  void complain(const std::string& message) {
    if (complaints_.size() >= kComplaintsMax || !complaints_.insert(message).second) return;
    const std::string time = format_time(world_.clock.wall());
    world_.console.err(fmt::format("{} agent {}: {}\n", time, settings_.node.value, message));
  }

  static constexpr const char* kNodeMark = "%n";
  static constexpr size_t kComplaintsMax = 20;

  World& world_;
  const NoticeWatchSettings settings_;
  Channel<MachineNotice>& notices_;
  std::set<std::string> complaints_;
  Scope scope_;
};

}  // namespace

Task<void> watch_notices(World& world, NoticeWatchSettings settings, Channel<MachineNotice>& notices) {
  Watcher watcher(world, std::move(settings), notices);
  co_await watcher.run();
}

}  // namespace rubato::node
