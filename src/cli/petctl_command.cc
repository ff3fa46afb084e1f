// `rubato petctl run_job` and `rubato aws run-job`: from flags to a plan, to a job, to its end.
#include "cli/petctl_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "archive/package.h"
#include "aws/s3_transfer.h"
#include "cli/petctl_session.h"
#include "core/text.h"
#include "petctl/host.h"
#include "petctl/job_launch.h"

namespace rubato::cli {
namespace {

constexpr Duration kPollFirst = 1s;
constexpr Duration kPollMax = 15s;

// A folder of ours for an archive, for as long as the command runs.
class Workplace {
 public:
  explicit Workplace(Files& files) : files_(files), path_(files.make_temporary_folder("rubato-petctl-")) {}
  ~Workplace() { files_.remove_tree(path_); }
  Workplace(const Workplace&) = delete;
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  Files& files_;
  const std::string path_;
};

std::string pack_folder(Files& files, const std::string& folder, const std::string& needed, const Workplace& place,
                        const Shell& shell) {
  const std::string path = place.at("folder.tar.zst");
  archive::PackOptions options;
  options.needed = needed;
  const archive::Package package =
      archive::pack(files, std::filesystem::absolute(folder).lexically_normal().string(), path, options);
  for (const std::string& note : package.left_out) shell.err(fmt::format("note: {}\n", note));
  return path;
}

class RunJob : public PetctlSession {
 public:
  RunJob(const ParsedCommand& parsed, const Shell& shell, bool native)
      : PetctlSession(parsed, shell), native_(native), place_(command_.world.files) {}

  int run() {
    read_flags();
    prepare_script();
    return command_.runtime.run(do_all());
  }

 private:
  std::string usage() const {
    return native_ ? "rubato aws run-job --size N --name NAME SCRIPT"
                   : "rubato petctl run_job --size N --specs_file FILE --name NAME SCRIPT";
  }

  void read_flags() {
    request_.name = parsed_.value("name");
    if (request_.name.empty()) throw Error(ErrorCode::kUsage, "--name is missing", "", "write " + usage());
    const Given* const size = parsed_.find("size");
    if (size == nullptr) throw Error(ErrorCode::kUsage, "--size is missing", "", "write " + usage());
    request_.size = whole_number(*size, 1);
    if (const Given* given = parsed_.find("min-size")) request_.min_size = whole_number(*given, 1);
    if (const Given* given = parsed_.find("max-size")) request_.max_size = whole_number(*given, 1);
    if (const Given* given = parsed_.find("max-restarts")) request_.max_restarts = whole_number(*given, 0);
    request_.nproc = parsed_.value("nproc-per-node");
    request_.keep = parsed_.has("keep");
    request_.rdzv_group = !native_ || parsed_.has("rdzv-group");
    if (const Given* given = parsed_.find("arguments")) request_.args = given->values;
    const auto& given = parsed_.positionals;
    const bool is_folder = !given.empty() && std::filesystem::is_directory(given.front());
    request_.script = petctl::read_script(given, parsed_.has("no-upload"), is_folder);
    read_hosts();
  }

  void read_hosts() {
    if (parsed_.has("specs-file")) {
      specs_ = read_specs();
      for (const std::string& note : specs_.notes) shell_.err(fmt::format("note: {}\n", note));
    } else if (!native_) {
      throw Error(ErrorCode::kUsage, "--specs_file is missing", "",
                  "docs/petctl.md shows one; 'rubato aws run-job' does without");
    }
    const std::string type = parsed_.value("instance-type");
    if (!type.empty()) specs_.worker.instance_type = type;
    if (native_) read_native_hosts();
  }

  void read_native_hosts() {
    petctl::WorkerSpecs& worker = specs_.worker;
    const auto take = [&](const char* flag, std::string& out) {
      if (parsed_.has(flag)) out = parsed_.value(flag);
    };
    take("docker-image", worker.docker_image);
    take("image-id", worker.image_id);
    take("instance-role", worker.instance_role);
    take("key-pair", worker.key_pair);
    take("efs", worker.efs_file_system_id);
    take("max-spot-price", worker.max_spot_price);
    if (const Given* given = parsed_.find("subnet")) worker.subnets = given->values;
    if (const Given* given = parsed_.find("security-group")) worker.security_groups = given->values;
    if (const Given* given = parsed_.find("ebs-volume-gb")) worker.ebs_volume_gb = whole_number(*given, 8);
    if (const Given* given = parsed_.find("s3")) {
      const aws::S3Address address = aws::parse_s3_address(given->values.back());
      worker.s3_bucket = address.bucket;
      worker.s3_prefix = address.key;
      while (worker.s3_prefix.ends_with('/')) worker.s3_prefix.pop_back();
    }
    read_accelerator();
    if (worker.instance_type.empty()) {
      throw Error(ErrorCode::kUsage, "--instance-type is missing", "", "write for example --instance-type g5.xlarge");
    }
    if (worker.s3_bucket.empty()) {
      throw Error(ErrorCode::kUsage, "--s3 is missing", "",
                  "write --s3 s3://BUCKET/PREFIX: scripts, logs and status go there");
    }
    if (worker.where.empty()) worker.where = "the flags";
    if (!parsed_.has("specs-file")) {
      specs_.rdzv = worker;
      specs_.rdzv.accelerator = petctl::Accelerator::kNone;
      specs_.rdzv.instance_type = "t3.small";
    }
  }

  void read_accelerator() {
    if (const Given* given = parsed_.find("accelerator")) {
      const std::string& text = given->values.back();
      if (text != "gpu" && text != "none") throw bad_value(*given, "there is no such accelerator", "write none or gpu");
      specs_.worker.accelerator = text == "gpu" ? petctl::Accelerator::kGpu : petctl::Accelerator::kNone;
    } else if (!parsed_.has("specs-file")) {
      const std::string& type = specs_.worker.instance_type;
      const bool gpu = type.size() > 1 && (type[0] == 'g' || type[0] == 'p') && type[1] >= '0' && type[1] <= '9';
      specs_.worker.accelerator = gpu ? petctl::Accelerator::kGpu : petctl::Accelerator::kNone;
    }
  }

  void refuse_old(const std::string& path) {
    const std::string text = command_.world.files.read_range(path, 0, petctl::kScriptBytesMax);
    if (const std::string why = petctl::refusal_of(text); !why.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("this script is for torchelastic 0.1 and cannot run: {}", why), path,
                  fmt::format("torchelastic has dropped that API in 0.2; see {}", petctl::kPortingPage));
    }
  }

  void prepare_script() {
    Files& files = command_.world.files;
    const petctl::Script& script = request_.script;
    if (script.kind != petctl::Script::Kind::kFile && script.kind != petctl::Script::Kind::kFolder) return;
    const bool folder = script.kind == petctl::Script::Kind::kFolder;
    const std::string path =
        std::filesystem::absolute(folder ? script.source + "/" + script.entry : script.source).lexically_normal();
    if (!std::filesystem::is_regular_file(path)) {
      throw Error(ErrorCode::kUsage, fmt::format("there is no script '{}'", path), "",
                  "a script in the container or on the host: --no_upload PATH");
    }
    refuse_old(path);
    upload_ = folder ? pack_folder(files, script.source, script.entry, place_, shell_) : path;
    request_.script_sha256 = archive::hash_of_file(files, upload_);
  }

  Task<int> do_all() {
    co_await open();
    request_.region = client_->region();
    const auto& endpoints = client_->config().endpoints;
    if (const auto own = endpoints.find("s3"); own != endpoints.end()) request_.s3_endpoint = own->second.text;
    request_.endpoints = aws::endpoint_variables(client_->config());
    const std::string binary = std::filesystem::read_symlink("/proc/self/exe").string();
    request_.binary_sha256 = archive::hash_of_file(command_.world.files, binary);
    const petctl::JobPlan plan = petctl::make_plan(request_, specs_);
    print_plan(plan);
    if (parsed_.has("dry-run")) co_return 0;
    const petctl::MissingPermissions missing = co_await petctl::missing_permissions(*client_, plan);
    print_missing(missing);
    remember_place(plan.name, plan.place());
    petctl::LaunchOrder order;
    order.plan = plan;
    order.binary_path = binary;
    order.script_path = upload_;
    order.fresh_key = shell_.random_token();
    order.on_progress = progress_printer();
    co_await petctl::launch_job(*client_, std::move(order));
    if (!parsed_.has("detach")) co_return co_await wait_for_end();
    print_detached(!missing.statements.empty());
    co_return 0;
  }

  void print_plan(const petctl::JobPlan& plan) {
    const auto& worker = plan.groups.back();
    shell_.err(fmt::format("job {} in {}: {} x {} (min {}, max {}){}, objects in {}\n", plan.name, client_->region(),
                           worker.size, worker.specs.instance_type, worker.min_size, worker.max_size,
                           specs_.worker.docker_image.empty() ? "" : ", in " + specs_.worker.docker_image,
                           plan.place()));
    if (!parsed_.has("dry-run")) return;
    for (const petctl::GroupPlan& group : plan.groups) {
      shell_.out(fmt::format("# {}: {} hosts, launch template {}\n{}", group.name, group.size, group.template_name,
                             group.user_data));
    }
  }

  void print_missing(const petctl::MissingPermissions& missing) {
    if (missing.statements.empty()) return;
    shell_.err(fmt::format(
        "note: {} For status and logs in S3, and an end of the job\n"
        "without this command, add these statements to its policy:\n{}\n"
        "Without them: status by EC2, logs by consoles, and this command removes the job when it has ended.\n",
        missing.unknown ? "whether the hosts' role may do enough cannot be asked (iam:SimulatePrincipalPolicy)."
                        : "the hosts' role may read S3 and no more.",
        missing.statements));
  }

  void print_detached(bool missing) {
    shell_.err(fmt::format(
        "{} is started.\n  status    rubato aws status {}\n  logs      rubato aws logs {}\n"
        "  end it    rubato {} {}\n",
        request_.name, request_.name, request_.name, native_ ? "aws kill-job" : "petctl kill_job", request_.name));
    if (request_.keep || missing) {
      shell_.err("Its hosts run, and cost money, until you end it.\n");
    } else {
      shell_.err("Its groups are deleted when it has ended.\n");
    }
  }

  Task<int> wait_for_end() {
    shell_.err(fmt::format("waiting for the end of {}; ^C leaves it running\n", request_.name));
    Duration pause = kPollFirst;
    std::string shown;
    int code = 1;
    while (true) {
      const petctl::JobView view = co_await view_of(request_.name);
      const petctl::JobPhase phase = petctl::phase_of(view);
      const std::string line = fmt::format("{}: {}, {} hosts", request_.name, to_string(phase), living_workers(view));
      if (line != shown) {
        shell_.err(line + "\n");
        shown = line;
        pause = kPollFirst;
      }
      const bool over = phase != petctl::JobPhase::kStarting && phase != petctl::JobPhase::kRunning;
      if (over) {
        code = phase == petctl::JobPhase::kSucceeded ? 0 : 1;
        print_failures(view, phase);
        break;
      }
      co_await Sleep(command_.world.clock.loop(), command_.world.clock.now() + pause);
      pause = std::min(pause * 3 / 2, kPollMax);
    }
    co_await take_down();
    co_return code;
  }

  static int living_workers(const petctl::JobView& view) {
    int out = 0;
    for (const petctl::HostView& host : view.hosts)
      out += host.role == petctl::HostRole::kWorker && host.state == "running";
    return out;
  }

  void print_failures(const petctl::JobView& view, petctl::JobPhase phase) {
    if (phase == petctl::JobPhase::kAbsent) shell_.err("its groups are gone: somebody else has ended it\n");
    if (phase != petctl::JobPhase::kFailed) return;
    for (const petctl::HostReport& one : view.reports) {
      if (one.role != "worker") continue;
      shell_.err(fmt::format("{}: exit code {}{}\n", one.instance, one.exit_code,
                             one.note.empty() ? "" : ": " + clean(one.note)));
    }
    if (view.reports_from == "S3") shell_.err(fmt::format("its logs: rubato aws logs {}\n", request_.name));
  }

  Task<void> take_down() {
    if (request_.keep) {
      shell_.err(
          fmt::format("kept, as --keep asks; its hosts cost money until: rubato aws kill-job {}\n", request_.name));
      co_return;
    }
    petctl::EndOrder order;
    order.name = request_.name;
    order.place = known_place(request_.name);
    order.all = false;
    order.on_progress = progress_printer();
    const std::vector<std::string> removed = co_await petctl::end_job(*client_, std::move(order));
    if (!removed.empty()) shell_.err(fmt::format("removed: {}\n", join(removed, ", ")));
  }

  const bool native_;
  Workplace place_;
  petctl::JobRequest request_;
  petctl::Specs specs_;
  std::string upload_;
};

class UploadCommand : public PetctlSession {
 public:
  using PetctlSession::PetctlSession;

  int run() {
    const std::string usage = "rubato petctl upload SCRIPT s3://BUCKET/KEY";
    std::string from = require_word(parsed_, 0, "SCRIPT", usage);
    aws::S3Address to = aws::parse_s3_address(require_word(parsed_, 1, "s3://BUCKET/KEY", usage));
    const Workplace place(command_.world.files);
    std::string name = std::filesystem::path(from).lexically_normal().filename().string();
    if (std::filesystem::is_directory(from)) {
      if (name.empty()) name = std::filesystem::path(from).lexically_normal().parent_path().filename().string();
      name += ".tar.zst";
      from = pack_folder(command_.world.files, from, "", place, shell_);
    } else {
      from = std::filesystem::absolute(from).lexically_normal().string();
    }
    if (to.key.empty() || to.key.ends_with('/')) to.key += name;
    command_.runtime.run(send(from, to));
    shell_.out(to_string(to) + "\n");
    return 0;
  }

 private:
  Task<int> send(std::string from, aws::S3Address to) {
    co_await open();
    aws::TransferRules rules;
    aws::Progress nothing = [](uint64_t, uint64_t) {};
    co_await aws::upload(*client_, from, to, rules, nothing);
    co_return 0;
  }
};

}  // namespace

int petctl_run_job_command(const ParsedCommand& parsed, const Shell& shell) {
  return RunJob(parsed, shell, false).run();
}
int aws_run_job_command(const ParsedCommand& parsed, const Shell& shell) { return RunJob(parsed, shell, true).run(); }
int petctl_upload_command(const ParsedCommand& parsed, const Shell& shell) {
  return UploadCommand(parsed, shell).run();
}

int aws_host_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string path = require_word(parsed, 0, "ORDER.json", "rubato aws-host ORDER.json");
  CommandWorld command;
  const std::optional<std::string> text = command.world.files.read(path);
  if (!text) throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be read", path));
  petctl::HostWork work;
  work.order = petctl::parse_order(*text);
  work.env = shell.env;
  return command.runtime.run(petctl::run_host(command.world, std::move(work)));
}

}  // namespace rubato::cli
