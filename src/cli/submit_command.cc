#include "cli/submit_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "archive/package.h"
#include "cli/commands.h"
#include "cli/fetched_source.h"
#include "cli/kubernetes_command.h"
#include "cli/submit_flags.h"
#include "client/logs.h"
#include "client/session.h"
#include "core/text.h"
#include "os/files.h"
#include "os/machine.h"
#include "terminal/document.h"
#include "terminal/render_jobs.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr size_t kChunkBytes = size_t{4} << 20;  // the most that the API takes at once
constexpr Duration kQuietFor = 500ms;            // a faster upload needs no words
// A folder that is not known to be a project goes along up to this size: a script with its neighbours does, somebody's
// downloads do not.
constexpr uint64_t kSmallBytes = uint64_t{32} << 20;
constexpr uint64_t kSmallEntries = 1000;
constexpr uint64_t kLargeBytes = uint64_t{100} << 20;  // of a package: worth a word, for it may be a mistake
constexpr size_t kNamedLargest = 3;
constexpr size_t kLeftOutShown = 5;  // of the files that cannot be packed

// A folder that is gone with it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(Files& files) : files_(files), path_(files.make_temporary_folder("rubato-submit-")) {}
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    try {
      files_.remove_tree(path_);
    } catch (const Error&) {
      // Nobody can do anything about it here; the system cleans its temporary folder.
    }
  }
  std::string file() const { return path_ + "/package.tar.zst"; }

 private:
  Files& files_;
  const std::string path_;
};

// Of the cluster that the words mean. One that is not there has none, and is complained about later.
JobDefaults defaults_of(const ParsedCommand& parsed, const Shell& shell, Files& files) {
  try {
    const std::string path = cluster_place(parsed, shell.env).folder + "/cluster.yaml";
    const auto text = files.read(path);
    return text ? read_cluster_file(*text, path).jobs : JobDefaults{};
  } catch (const Error&) {
    return {};
  }
}

SubmitView real_view(const ParsedCommand& parsed, const Shell& shell, Files& files) {
  SubmitView view;
  view.defaults = defaults_of(parsed, shell, files);
  view.env = shell.env;
  view.user = os::user_name();
  view.folder = std::filesystem::current_path().string();
  view.kind_of = [](const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (std::filesystem::is_directory(status)) return PathKind::kFolder;
    return std::filesystem::exists(status) ? PathKind::kFile : PathKind::kMissing;
  };
  view.read = [&files](const std::string& path) { return files.read(path); };
  return view;
}

// A person who waits sees what for; one who sends much by mistake learns what.
class PackReport {
 public:
  explicit PackReport(const Shell& shell) : shell_(shell), line_(shell), begin_(shell.now()) {}

  void attach(archive::PackOptions& options) {
    options.on_progress = [this](const archive::PackProgress& progress) { show(progress); };
  }

  // Only for a package that was made: one that was given up is not sent.
  void warn(const std::string& folder) {
    line_.clear();
    if (size_ < kLargeBytes) return;
    std::vector<std::string> named;
    for (const auto& [bytes, path] : largest_) {
      if (named.size() < kNamedLargest && bytes > size_ / 20)
        named.push_back(fmt::format("{} {}", path, archive::human_bytes(bytes)));
    }
    shell_.err(fmt::format("note: {} are packed from {}{}\n", archive::human_bytes(size_), folder,
                           named.empty() ? "" : "; the largest: " + join(named, ", ")));
    shell_.err(fmt::format("  fix name what the job does not need in {}/.rubatoignore\n", folder));
  }

 private:
  void show(const archive::PackProgress& progress) {
    size_ = progress.of_bytes;
    if (!progress.largest.empty()) largest_ = progress.largest;
    if (shell_.now() - begin_ > kQuietFor) {
      line_.show(fmt::format("packing {} of {}", archive::human_bytes(progress.bytes),
                             archive::human_bytes(progress.of_bytes)));
    }
  }

  const Shell& shell_;
  LiveLine line_;
  const WallTime begin_;
  uint64_t size_ = 0;
  std::vector<std::pair<uint64_t, std::string>> largest_;
};

archive::Package pack_perhaps(Files& files, const SubmitSource& source, const std::string& file, const Shell& shell) {
  archive::PackOptions options;
  options.size_max = kSmallBytes;
  options.entries_max = kSmallEntries;
  options.needed = source.alone;
  try {
    return archive::pack(files, source.path, file, options);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kUsage || source.alone.empty()) throw;
  }
  shell.err(fmt::format("note: only {} is sent: {} is neither a project nor small; --working-dir {} sends it all\n",
                        source.alone, source.path, source.path));
  archive::PackOptions alone;
  alone.only = {source.alone};
  return archive::pack(files, source.path, file, alone);
}

archive::Package make_package(Files& files, const SubmitSource& source, const std::string& file, const Shell& shell) {
  switch (source.kind) {
    case SubmitSource::Kind::kFolder: {
      archive::PackOptions options;
      options.needed = source.alone;
      PackReport progress(shell);
      progress.attach(options);
      archive::Package package = archive::pack(files, source.path, file, options);
      progress.warn(source.path);
      return package;
    }
    case SubmitSource::Kind::kPerhaps:
      return pack_perhaps(files, source, file, shell);
    case SubmitSource::Kind::kArchive:
      return archive::repack(files, source.path, file);
    case SubmitSource::Kind::kNothing:
      break;
  }
  CHECK(false);
}

// A person who looks at a silent terminal should know what it waits for, and how to help.
std::function<void(const Error&)> tell_waiting(const Shell& shell) {
  return [&shell](const Error& error) {
    shell.err(fmt::format("{}; waiting for it\n", error.message));
    if (!error.hint.empty()) shell.err(fmt::format("  fix {}\n", error.hint));
  };
}

json submit_job(Api& api, const Shell& shell, const JobSpec& spec, const std::string& request_id) {
  json body = to_json(spec);
  // An answer may get lost: with the same id, asking again does not submit again.
  body["request_id"] = request_id;
  ApiRequest request;
  request.method = "POST";
  request.target = "jobs";
  request.body = body.dump();
  request.patience = kHeadPatience;
  request.on_waiting = tell_waiting(shell);
  return api.call(request);
}

std::string left_out_text(const std::vector<std::string>& sentences) {
  std::string out;
  for (size_t i = 0; i < std::min(sentences.size(), kLeftOutShown); ++i) out += "note: " + sentences[i] + "\n";
  if (sentences.size() > kLeftOutShown) {
    out += fmt::format("note: and so are at least {} others\n", sentences.size() - kLeftOutShown);
  }
  return out;
}

// A flag of ours that came after the script, and so went to the script.
void hint_at_late_flags(const ParsedCommand& parsed, const JobSpec& spec, const Shell& shell) {
  if (parsed.separated) return;
  for (const std::string& word : spec.args) {
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    const bool ours = std::ranges::any_of(submit_table().flags, [&](const Flag& flag) {
      return name.size() > 2 && name.starts_with("--") && flag.name == name.substr(2);
    });
    if (!ours) continue;
    shell.err(fmt::format("note: {0} after {1} is given to {1}; if you mean rubato's, write: rubato submit {0} {1}\n",
                          name, spec.program));
  }
}

}  // namespace

void upload_package(Api& api, const Shell& shell, const std::string& file, const std::string& hash, uint64_t size) {
  const auto state = read_document<api::PackageProgress>(get(api, "packages/" + hash));
  if (state.present.value_or(false)) return;
  os::RealFiles files;
  LiveLine line(shell);
  const WallTime begin = shell.now();
  uint64_t have = state.have_bytes > size ? 0 : state.have_bytes;
  int without_progress = 0;
  bool complete = false;
  while (!complete) {
    ApiRequest request;
    request.method = "PUT";
    request.target = fmt::format("packages/{}?offset={}&size={}", hash, have, size);
    request.body = files.read_range(file, have, kChunkBytes);
    request.type = "application/octet-stream";
    request.limit = 60s;
    request.patience = kHeadPatience;
    request.on_waiting = tell_waiting(shell);
    const auto reply = read_document<api::PackageProgress>(api.call(request));
    complete = reply.complete.value_or(false);
    const uint64_t now_have = reply.have_bytes;
    without_progress = now_have > have ? 0 : without_progress + 1;
    if (!complete && without_progress == 3) {
      throw Error(ErrorCode::kFailed,
                  fmt::format("the head does not take the package: it stays at {} of {} bytes", now_have, size));
    }
    have = std::min(now_have, size);
    if (shell.now() - begin > kQuietFor) {
      line.show(fmt::format("sending {} of {}", archive::human_bytes(have), archive::human_bytes(size)));
    }
  }
}

int submit_command(const ParsedCommand& typed, const Shell& shell) {
  if (typed.has("manifest")) return submit_manifest_command(typed, shell);
  os::RealFiles files;
  const FetchedSource fetched(typed, shell, files);
  const ParsedCommand& parsed = fetched.parsed();
  SubmitPlan plan = plan_submit(parsed, real_view(parsed, shell, files));
  (void)job_spec_from_json(to_json(plan.spec));  // what the head would refuse is said before anything is sent
  const Session session = open_session(parsed, shell);
  for (const std::string& note : plan.notes) shell.err("note: " + note + "\n");
  hint_at_late_flags(parsed, plan.spec, shell);
  if (plan.source.kind != SubmitSource::Kind::kNothing) {
    const TemporaryFolder folder(files);
    const archive::Package package = make_package(files, plan.source, folder.file(), shell);
    shell.err(left_out_text(package.left_out));
    upload_package(*session.api, shell, folder.file(), package.hash, package.bytes);
    plan.spec.package = package.hash;
  }
  const json reply = submit_job(*session.api, shell, plan.spec, shell.random_token());
  const auto job = read_document<api::Job>(reply);
  const std::string& id = job.id;
  shell.out(parsed.has("json") ? json_text(reply) : id + "\n");
  shell.err(fmt::format("submitted {} ({})\n", job.name, id));
  shell.err(never_fits_text(job));
  if (parsed.has("follow") || parsed.has("wait")) {
    LogQuery query;
    query.job = id;
    query.follow = parsed.has("follow");
    query.look.colour = shell.colour;
    return follow_job(session, shell, query);
  }
  shell.err(next_commands(id, session.cluster_flag));
  return 0;
}

}  // namespace rubato::cli
