#include "client/fetch_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "archive/folder_stream.h"
#include "archive/merged_tree.h"
#include "archive/package.h"
#include "client/logs.h"
#include "client/session.h"
#include "core/text.h"
#include "os/file_lock.h"
#include "os/files.h"
#include "terminal/document.h"
#include "terminal/render_jobs.h"

namespace rubato::cli {
namespace {

void check_target(const std::filesystem::path& target, bool force) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(target, error);
  if (!std::filesystem::exists(status)) return;
  const bool folder = std::filesystem::is_directory(status);
  if (folder && (force || std::filesystem::is_empty(target, error))) return;
  throw Error(ErrorCode::kConflict,
              fmt::format("{} is there already{}", target.string(), folder ? "" : " and no folder"), "",
              folder ? "give another folder, or --force to replace files in it" : "give another name");
}

// A fetch that was killed leaves what it had received; whoever lives holds the lock of his own.
void remove_left_drafts(Files& files, const std::string& parent, const std::string& target) {
  const std::string prefix = std::filesystem::path(target).filename().string() + archive::kDraftMark;
  for (const Files::Entry& entry : files.list(parent)) {
    if (entry.kind != Files::Entry::Kind::kFolder || !entry.name.starts_with(prefix)) continue;
    const std::string path = parent + "/" + entry.name;
    if (os::FileLock::try_take_folder(path)) files.remove_tree(path);
  }
}

}  // namespace

int fetch_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string reference = require_word(parsed, 0, "the job", "rubato fetch ID DIR");
  const std::string typed = require_word(parsed, 1, "the folder", "rubato fetch ID DIR");
  std::string target = std::filesystem::absolute(typed).lexically_normal().string();
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  check_target(target, parsed.has("force"));
  const Session session = open_reading_session(parsed, shell);
  nlohmann::json job = get(*session.api, "jobs/" + url_part(reference));
  const std::string id = raw_in(job, "id");

  session.api->hold_interrupts();
  std::optional<nlohmann::json> complete = job;
  if (!session.past) complete = wait_for_outputs(*session.api, shell, job);
  if (!complete) {
    shell.err("\ninterrupted; nothing was written\n");
    return kInterruptedExit;
  }
  job = std::move(*complete);
  const auto ended = read_document<api::Job>(job);
  if (const std::vector<std::string> held = outputs_in(ended, "held"); !held.empty()) {
    const std::string name = ended.name, nodes = join(held, ", ");
    shell.err(
        session.past
            ? fmt::format("warning: what {} wrote on {} had not come when the cluster went down\n", name, nodes)
            : fmt::format("note: {} has not ended: what it writes on {} comes when its workers there have ended\n",
                          name, nodes));
  }
  os::RealFiles files;
  const std::string parent = std::filesystem::path(target).parent_path().string();
  files.make_folders(parent);
  std::optional<os::FileLock> alone = os::FileLock::take_folder(parent);  // until our own is held
  if (alone) remove_left_drafts(files, parent, target);
  archive::FolderUntar untar(files, target);
  const std::optional<os::FileLock> held = os::FileLock::take_folder(untar.draft());
  alone.reset();
  LiveLine line(shell);
  const WallTime begin = shell.now();
  const auto take = [&](std::string_view piece) {
    untar.feed(piece);
    if (shell.now() - begin > 500ms) line.show("received " + archive::human_bytes(untar.bytes()));
  };
  if (session.api->stream("jobs/" + url_part(id) + "/output", take) == StreamEnd::kInterrupted) {
    shell.err("\ninterrupted; nothing was written\n");
    return kInterruptedExit;
  }
  untar.finish();
  line.clear();
  shell.err(missing_outputs_text(ended));
  if (files.exists(target + "/" + archive::kOthers)) {
    shell.err(
        fmt::format("warning: several machines wrote the same files; those of the lowest rank count, the others "
                    "are in {}/{}\n",
                    typed, archive::kOthers));
  }
  if (parsed.has("json")) {
    shell.out(json_text({{"job", id},
                         {"folder", target},
                         {"bytes", untar.bytes()},
                         {"held", outputs_in(ended, "held")},
                         {"missing", outputs_in(ended, "missing")}}));
  } else {
    shell.err(fmt::format("the output of {} ({}) is in {}\n", ended.name, archive::human_bytes(untar.bytes()), typed));
  }
  return 0;
}

}  // namespace rubato::cli
