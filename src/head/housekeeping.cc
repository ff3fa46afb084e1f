#include "head/housekeeping.h"

#include <set>

#include "world/trees.h"

namespace rubato::head {

namespace {

constexpr Duration kEvery = 600s;
// A sweep of a thousand short jobs must not cost somebody the results of this morning.
constexpr Duration kJobRest = 7 * 24 * 3600s;
// From the upload of a package to the submission that names it.
constexpr Duration kPackageRest = 3600s;
constexpr Duration kPartRest = 24 * 3600s;
constexpr std::string_view kPackageEnd = ".tar.zst";

std::vector<Files::Entry> entries_of(Files& files, const std::string& folder) {
  return files.exists(folder) ? files.list(folder) : std::vector<Files::Entry>();
}

bool rested(Files& files, const std::string& path, Duration span, WallTime now) {
  const std::optional<WallTime> modified = files.modified(path);
  return !modified || *modified + std::chrono::duration_cast<std::chrono::microseconds>(span) < now;
}

}  // namespace

std::vector<std::string> retired(Files& files, const std::string& folder, const cluster::State& state, WallTime now) {
  std::vector<std::string> paths;
  const std::string jobs = folder + "/jobs";
  for (const Files::Entry& entry : entries_of(files, jobs)) {
    // Nothing but what a head has made: somebody may keep files of his own there.
    const bool is_job = entry.kind == Files::Entry::Kind::kFolder && entry.name.starts_with("j-");
    if (!is_job || state.jobs.contains(JobId{entry.name})) continue;
    const std::string path = jobs + "/" + entry.name;
    const auto at_rest = [&](const char* part) { return rested(files, path + part, kJobRest, now); };
    if (at_rest("") && at_rest("/log") && at_rest("/output") && at_rest("/nodes")) paths.push_back(path);
  }
  std::set<std::string> wanted;
  for (const auto& [id, job] : state.jobs) wanted.insert(job.spec.package + std::string(kPackageEnd));
  const std::string packages = folder + "/packages";
  for (const Files::Entry& entry : entries_of(files, packages)) {
    const std::string path = packages + "/" + entry.name;
    const bool whole = entry.name.ends_with(kPackageEnd);
    const bool part = entry.name.ends_with(std::string(kPackageEnd) + ".part");
    if (entry.kind != Files::Entry::Kind::kFile || (!whole && !part)) continue;
    if (whole && wanted.contains(entry.name)) continue;
    if (rested(files, path, whole ? kPackageRest : kPartRest, now)) paths.push_back(path);
  }
  return paths;
}

Task<void> keep_house(World& world, std::string folder, StateReaders& readers, Log log) {
  while (true) {
    co_await Sleep(world.clock.loop(), world.clock.now() + kEvery);
    try {
      const auto found = std::make_shared<std::vector<std::string>>();
      std::function<void(const cluster::State&)> look = [&files = world.files, folder, now = world.clock.wall(),
                                                         found](const cluster::State& state) {
        *found = retired(files, folder, state, now);
      };
      co_await readers.read(std::move(look));
      const std::vector<std::string>& paths = *found;
      for (const std::string& path : paths) co_await remove_in_turns(world, path);
      if (!paths.empty()) log.info("removed what forgotten jobs have left", {{"paths", paths.size()}});
    } catch (const Error& error) {
      log.warning("old files stay", {{"error", error.message}});
    }
  }
}

}  // namespace rubato::head
