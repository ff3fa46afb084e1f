// `rubato fetch`.
#include <fmt/format.h>

#include <filesystem>

#include "archive/folder_stream.h"
#include "archive/merged_tree.h"
#include "archive/package.h"
#include "cli/document.h"
#include "cli/job_commands.h"
#include "cli/logs.h"
#include "cli/render_jobs.h"
#include "cli/session.h"
#include "core/text.h"
#include "os/files.h"

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
  archive::FolderUntar untar(files, target);
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
