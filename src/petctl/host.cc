#include "petctl/host.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "archive/codec.h"
#include "archive/folder_stream.h"
#include "aws/auto_scaling.h"
#include "aws/credentials.h"
#include "aws/metadata.h"
#include "aws/s3_transfer.h"
#include "core/error.h"
#include "core/line_buffer.h"
#include "core/scope.h"
#include "core/text.h"
#include "core/time.h"
#include "petctl/job_store.h"
#include "rest/cloud_error.h"

namespace rubato::petctl {
namespace {

constexpr Duration kPollPause = 2s;
constexpr Duration kMeetingPlaceMax = 30min;  // for as long the client may wait for the first host
constexpr Duration kDockerMax = 2min;
constexpr Duration kFetchMax = 3min;  // S3 hears late of a new role
constexpr Duration kLogPauseFirst = 5s;
constexpr Duration kLogPauseMax = 60s;
constexpr Duration kOthersMax = 60s;  // for the last reports and logs of other hosts
constexpr size_t kLogTailMax = size_t{8} << 20;
constexpr size_t kPieceMax = size_t{1} << 20;
constexpr int kNotRun = 125;  // as docker: what should have run did not

class Host {
 public:
  Host(World& world, HostWork work)
      : world_(world),
        order_(std::move(work.order)),
        env_(std::move(work.env)),
        home_(kHome),
        scope_(world.clock.loop()) {}

  Task<int> run() {
    world_.files.make_folders(home_ + "/state");
    world_.files.make_folders(home_ + "/work");
    log_ = world_.files.open_append(log_path());
    co_await open();
    co_await report(HostReport::State::kStarting, 0, "");
    int code = kNotRun;
    std::string note;
    try {
      code = co_await work();
    } catch (const Error& error) {
      note = error.message;
      print(render(error));
    }
    if (order_.role == HostRole::kRdzv) co_return code;
    co_await finish(code, std::move(note));
    co_return code;
  }

 private:
  std::string log_path() const { return home_ + "/job.log"; }
  std::string key_path() const { return home_ + "/state/key"; }

  void print(std::string_view text) {
    log_->append(text);
    logged_ += text.size();
    world_.console.out(text);
  }
  void log_line(const std::string& text) { print(fmt::format("rubato: {}\n", text)); }

  Task<void> open() {
    aws::Metadata metadata(world_, env_);
    const std::optional<std::string> id = co_await metadata.get("/latest/meta-data/instance-id");
    const std::optional<std::string> address = co_await metadata.get("/latest/meta-data/local-ipv4");
    if (!id || !address) {
      throw Error(ErrorCode::kFailed, "this is no EC2 instance: its metadata service does not answer",
                  "169.254.169.254", "aws-host is started by the user data of a job's hosts");
    }
    instance_ = *id;
    address_ = *address;
    aws::Settings settings;
    settings.env = env_;
    settings.region = order_.region;
    client_ = co_await aws::open_client(world_, std::move(settings));
    store_ = std::make_unique<JobStore>(*client_, order_.bucket, order_.prefix);
    log_line(fmt::format("{} {} of the job {}, at {}", to_string(order_.role), instance_, order_.job, address_));
  }

  Task<int> work() {
    co_await fetch_key();
    if (order_.role == HostRole::kRdzv) co_return co_await host_rendezvous();
    const bool over = co_await job_is_done();
    if (over) co_return 0;
    co_await mount_efs();
    co_await fetch_script();
    co_await wait_for_docker();
    RdzvRecord place = co_await meeting_place();
    co_await report(HostReport::State::kRunning, 0, "");
    scope_.spawn(upload_logs());
    scope_.spawn(watch_events());
    int code = 0;
    do {
      known_epoch_ = place.epoch;
      endpoint_ = place.endpoint;
      Scope watching(world_.clock.loop());
      moved_ = false;
      watching.spawn(watch_meeting_place(place.endpoint));
      code = co_await run_child(worker_argv(order_, place.endpoint), worker_variables(order_, place.endpoint));
      watching.cancel();
      if (moved_) place = co_await meeting_place();
    } while (moved_);
    scope_.cancel();
    co_return code;
  }

  // A host that comes up while the agents' host is being replaced is told the old place. Until it has joined, it looks
  // whether there is a new one.
  Task<void> watch_meeting_place(std::string endpoint) {
    while (!joined_) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kPollPause);
      std::optional<RdzvRecord> found;
      try {
        found = co_await unless_forbidden(store_->rdzv());
      } catch (const Error& error) {
        log_line(error.message);
      }
      read_events();
      if (joined_ || !found || found->endpoint == endpoint || child_ == nullptr) continue;
      log_line(fmt::format("the agents now meet at {}", found->endpoint));
      moved_ = true;
      child_->signal_group(SIGTERM);
      co_return;
    }
  }

  Task<int> host_rendezvous() {
    const RdzvRecord place = co_await meeting_place();
    if (place.instance != instance_) {
      log_line(fmt::format("the job's rendezvous is at {}: this host, which replaces a lost one, stays idle",
                           place.endpoint));
      co_return 0;
    }
    std::vector<std::string> none;
    co_return co_await run_child(rdzv_argv(order_, place.endpoint), std::move(none));
  }

  // A host that a group made again after the job's end has nothing to do.
  Task<bool> job_is_done() {
    if (!may_write_) co_return false;
    bool done = false;
    try {
      const std::vector<HostReport> reports = co_await store_->reports(known_);
      for (const HostReport& one : reports) done = done || one.state == HostReport::State::kSucceeded;
    } catch (const rest::CloudError& error) {
      if (error.code != ErrorCode::kAuth) throw;
    }
    if (done) log_line("the job has succeeded before this host came up");
    co_return done;
  }

  // S3 answers "forbidden" for what is not there to who may not list.
  template <class Value>
  Task<std::optional<Value>> unless_forbidden(Task<std::optional<Value>> task) {
    std::optional<Value> out;
    try {
      out = co_await std::move(task);
    } catch (const rest::CloudError& error) {
      if (error.code != ErrorCode::kAuth) throw;
      refusal_ = error.message;
    }
    co_return out;
  }

  Task<void> fetch_key() {
    const Instant deadline = world_.clock.now() + kFetchMax;
    std::optional<std::string> key;
    while (!key) {
      key = co_await unless_forbidden(store_->read("key"));
      if (!key && world_.clock.now() >= deadline) {
        throw Error(ErrorCode::kAuth, "the job's key cannot be read: " + refusal_, store_->place(),
                    "the instance role must be allowed s3:GetObject there");
      }
      if (!key) co_await Sleep(world_.clock.loop(), world_.clock.now() + kPollPause);
    }
    world_.files.write_atomically(key_path(), *key);
    world_.files.set_mode(key_path(), 0600);
  }

  Task<RdzvRecord> meeting_place() {
    const Instant deadline = world_.clock.now() + kMeetingPlaceMax;
    bool said = false;
    while (true) {
      const std::optional<RdzvRecord> found = co_await unless_forbidden(store_->rdzv());
      if (found) co_return *found;
      if (!std::exchange(said, true)) log_line("waiting to be told where the hosts meet");
      if (world_.clock.now() >= deadline) {
        throw Error(ErrorCode::kUnavailable, "nobody has said where the hosts meet", store_->place(),
                    "was run_job killed? Repeat it: it goes on where it ended");
      }
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kPollPause);
    }
  }

  Task<void> mount_efs() {
    if (order_.efs.empty()) co_return;
    world_.files.make_folders(std::string(kEfsMount));
    std::vector<std::string> none;
    const int code = co_await run_child(efs_mount_argv(order_), std::move(none));
    if (code == 0) co_return;
    throw Error(ErrorCode::kFailed, fmt::format("{} cannot be mounted", order_.efs), std::string(kEfsMount),
                "the subnet needs a mount target, its security group must let NFS (2049) in, and the image needs an "
                "NFS client (Amazon Linux has one; Ubuntu: nfs-common)");
  }

  // An image may start docker after user data.
  Task<void> wait_for_docker() {
    if (order_.docker_image.empty()) co_return;
    const Instant deadline = world_.clock.now() + kDockerMax;
    while (true) {
      const std::vector<std::string> ask = {"docker", "version", "--format", "docker {{.Server.Version}}"};
      std::vector<std::string> none;
      const int code = co_await run_child(ask, std::move(none));
      if (code == 0) co_return;
      if (world_.clock.now() >= deadline) {
        throw Error(ErrorCode::kFailed, "docker does not answer on this host", "",
                    "name an image_id that has docker, or leave out docker_image");
      }
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kPollPause);
    }
  }

  Task<void> fetch_script() {
    const Script& script = order_.script;
    const std::string work = home_ + "/work";
    if (script.kind == Script::Kind::kOnHost) co_return;
    const aws::S3Address from = aws::parse_s3_address(script.source);
    const std::string name = std::filesystem::path(from.key).filename().string();
    const bool archive = script.kind == Script::Kind::kS3Tar;
    const std::string path = (archive ? home_ + "/state/" : work + "/") + name;
    log_line(fmt::format("fetching {}", script.source));
    aws::TransferRules rules;
    aws::Progress nothing = [](uint64_t, uint64_t) {};
    co_await aws::download(*client_, from, path, rules, nothing);
    std::string entry = path;
    if (archive) {
      world_.files.remove_tree(work);
      unpack_archive(world_.files, path, work);
      entry = work + "/" + script.entry;
      if (!world_.files.exists(entry)) {
        throw Error(ErrorCode::kNotFound, fmt::format("{} has no {}", script.source, script.entry), "",
                    "the script's path is relative to the archive's top");
      }
    }
    world_.files.set_mode(entry, 0755);
    const std::string refusal = refusal_of(world_.files.read_range(entry, 0, kScriptBytesMax));
    if (!refusal.empty()) {
      throw Error(ErrorCode::kUsage, "this script is for torchelastic 0.1: " + refusal, script.source,
                  fmt::format("see {}", kPortingPage));
    }
  }

  Task<int> run_child(std::vector<std::string> argv, std::vector<std::string> variables) {
    log_line(shell_join(argv));
    SpawnSpec spec;
    spec.argv = std::move(argv);
    for (const auto& [name, value] : env_) spec.env.push_back(name + "=" + value);
    for (std::string& one : variables) spec.env.push_back(std::move(one));
    spec.cwd = home_ + "/work";
    spec.in = InputSource::kNull;
    spec.out.kind = spec.err.kind = OutputTarget::Kind::kPipe;
    const std::unique_ptr<Process> child = world_.processes.spawn(spec);
    child_ = child.get();
    while (true) {
      const std::optional<OutputChunk> chunk = co_await child->output().pop();
      if (!chunk) break;
      print(chunk->bytes);
    }
    const ExitStatus status = co_await child->wait();
    child_ = nullptr;
    if (!status.ok()) log_line(fmt::format("{}: {}", spec.argv.front(), describe(status)));
    co_return status.signal != 0 ? 128 + status.signal : status.code;
  }

  // ---- what others learn of it ----

  Task<void> report(HostReport::State state, int code, std::string note) {
    HostReport out;
    out.instance = instance_;
    out.address = address_;
    out.role = to_string(order_.role);
    out.state = state;
    out.exit_code = code;
    out.note = std::move(note);
    out.since = format_time(world_.clock.wall());
    co_await write(store_->write_report(std::move(out)));
  }

  // The first refusal ends all writing: the client then reads EC2 and consoles.
  Task<void> write(Task<void> task) {
    if (!may_write_) co_return;
    try {
      co_await std::move(task);
    } catch (const rest::CloudError& error) {
      log_line(error.message);
      if (error.code != ErrorCode::kAuth) co_return;
      may_write_ = false;
      log_line("this role may not write to S3: status and logs are told by this console only");
    } catch (const Error& error) {
      log_line(error.message);
    }
  }

  Task<void> write_log_tail() {
    const uint64_t size = logged_;
    const uint64_t from = size > kLogTailMax ? size - kLogTailMax : 0;
    std::string bytes = world_.files.read_range(log_path(), from, kLogTailMax);
    if (from > 0) bytes.insert(0, fmt::format("[the last {} of {} bytes]\n", bytes.size(), size));
    co_await store_->write(fmt::format("logs/{}.log", instance_), std::move(bytes));
  }

  Task<void> upload_logs() {
    Duration pause = kLogPauseFirst;
    uint64_t sent = 0;
    while (may_write_) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
      pause = std::min(pause * 2, kLogPauseMax);
      if (logged_ == sent) continue;
      sent = logged_;
      co_await write(write_log_tail());
    }
  }

  // When the agents' host is lost, the one that takes over says so: newcomers must find it.
  Task<void> watch_events() {
    while (true) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kPollPause);
      read_events();
      if (!hosting_) continue;
      RdzvRecord record = *std::exchange(hosting_, std::nullopt);
      log_line(fmt::format("this host's agent now keeps the group, at {}", record.endpoint));
      co_await write(store_->write_rdzv(std::move(record)));
    }
  }

  // What the agent has written since the last time: that it has joined, that it hosts.
  void read_events() {
    const std::string path = home_ + "/state/events.jsonl";
    if (!world_.files.exists(path)) return;
    const std::string bytes = world_.files.read_range(path, events_read_, kPieceMax);
    events_read_ += bytes.size();
    events_lines_.add(bytes);
    while (const auto line = events_lines_.next()) {
      const nlohmann::json event = nlohmann::json::parse(*line, nullptr, false);
      if (!event.is_object()) continue;
      const std::string kind = event.value("event", "");
      joined_ = joined_ || kind == "joined";
      if (kind != "hosting") continue;
      RdzvRecord record;
      record.instance = instance_;
      record.endpoint = event.value("address", "");
      record.epoch = event.value("epoch", uint64_t{0});
      if (record.epoch <= known_epoch_ || record.endpoint.empty()) continue;
      known_epoch_ = record.epoch;
      if (record.endpoint != endpoint_) hosting_ = std::move(record);
    }
  }

  // ---- the end ----

  Task<void> finish(int code, std::string note) {
    const bool good = code == 0;
    print(end_line(order_.job, instance_, code));
    if (may_write_) co_await write(write_log_tail());
    co_await report(good ? HostReport::State::kSucceeded : HostReport::State::kFailed, code, std::move(note));
    if (order_.keep || !may_write_) co_return;
    const bool last = co_await others_are_done(good);
    if (last) co_await tear_down();
  }

  // After a success the others are given time for their last reports; after a failure they may go on without this host.
  Task<bool> others_are_done(bool good) {
    const Instant deadline = world_.clock.now() + kOthersMax;
    while (true) {
      bool busy = false;
      try {
        const std::vector<HostReport> reports = co_await store_->reports(known_);
        const std::set<std::string> there = co_await members();
        for (const HostReport& one : reports) busy = busy || (there.contains(one.instance) && !one.ended());
      } catch (const rest::CloudError& error) {
        log_line(error.message);
        co_return false;
      }
      if (!busy) co_return true;
      if (!good || world_.clock.now() >= deadline) co_return good;
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kPollPause);
    }
  }

  // The workers' group now: what a lost host has reported last says nothing of it.
  Task<std::set<std::string>> members() {
    std::vector<std::string> names = {order_.groups.back()};
    const auto groups = co_await aws::describe_scaling_groups(*client_, std::move(names));
    std::set<std::string> out;
    for (const aws::ScalingGroup& group : groups) {
      for (const aws::ScalingGroup::Member& member : group.members) out.insert(member.id);
    }
    co_return out;
  }

  Task<void> tear_down() {
    log_line("the job has ended: its Auto Scaling groups are deleted");
    for (const std::string& group : order_.groups) {
      try {
        co_await aws::delete_scaling_group(*client_, group);
      } catch (const rest::CloudError& error) {
        log_line(fmt::format("{} stays: {}", group, error.message));
      }
    }
  }

  World& world_;
  const NodeOrder order_;
  const aws::Environment env_;
  const std::string home_;
  std::string instance_, address_;
  std::unique_ptr<aws::Client> client_;
  std::unique_ptr<JobStore> store_;
  KnownReports known_;
  std::unique_ptr<Appender> log_;
  uint64_t logged_ = 0;
  uint64_t known_epoch_ = 0;
  std::string endpoint_;               // where its agent was sent
  std::optional<RdzvRecord> hosting_;  // not told yet
  uint64_t events_read_ = 0;
  LineBuffer events_lines_;
  bool may_write_ = true;
  Process* child_ = nullptr;  // while it runs
  bool joined_ = false;       // its agent has been in the group
  bool moved_ = false;        // it was ended: the agents meet elsewhere
  std::string refusal_ = "it is not there";
  Scope scope_;  // last: its children use all of the above
};

}  // namespace

void unpack_archive(Files& files, const std::string& path, const std::string& folder) {
  const std::string name = std::filesystem::path(path).filename().string();
  files.make_folders(folder);
  archive::FolderSink sink(files, folder);
  archive::TarReader tar(name, archive::kStreamLimits, sink);
  const std::unique_ptr<Reader> reader = files.open_read(path);
  std::string bytes = reader->read(kPieceMax);
  const std::unique_ptr<archive::Decoder> decoder = archive::make_decoder(name, bytes);
  const archive::Output output = [&tar](std::string_view piece) { tar.feed(piece); };
  for (; !bytes.empty(); bytes = reader->read(kPieceMax)) decoder->decode(bytes, output);
  decoder->finish();
  tar.finish();
}

Task<int> run_host(World& world, HostWork work) {
  Host host(world, std::move(work));
  co_return co_await host.run();
}

}  // namespace rubato::petctl
