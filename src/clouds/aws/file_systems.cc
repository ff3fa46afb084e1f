#include "clouds/aws/file_systems.h"

#include <fmt/format.h>

#include <algorithm>

#include "aws/policy.h"
#include "aws/storage.h"
#include "core/sha256.h"
#include "core/text.h"
#include "rest/cloud_error.h"

namespace rubato::clouds {
namespace {

using aws::Client;
using aws::FileSystem;
using aws::MountTarget;
using Wanted = Ec2Config::WantedFileSystem;

constexpr Duration kReadyMax = 10min;  // AWS takes a minute or two
constexpr Duration kReadyPause = 2s;
constexpr size_t kTokenDigits = 40;
constexpr std::string_view kNfsOptions =
    "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport";

bool is_ours(const FileSystem& one, const Ec2Config& config) {
  return std::ranges::any_of(
      one.tags, [&](const auto& tag) { return tag.first == aws::kClusterTag && tag.second == config.cluster; });
}

std::string title_of(const Wanted& wanted, const FileSystem& found) {
  return wanted.name.empty() ? fmt::format("file system {}", found.id)
                             : fmt::format("file system '{}' ({})", wanted.name, found.id);
}

bool is_going(const FileSystem& one) { return one.state == "deleting" || one.state == "deleted"; }

// Of several with the same name ours counts first, then the first by its id.
std::optional<FileSystem> find_in(std::vector<FileSystem> all, const Wanted& wanted, const Ec2Config& config) {
  std::erase_if(all, [&](const FileSystem& one) {
    return is_going(one) || (wanted.id.empty() ? one.name != wanted.name : one.id != wanted.id);
  });
  std::ranges::sort(all, {}, [&](const FileSystem& one) { return std::pair(!is_ours(one, config), one.id); });
  if (all.empty()) return std::nullopt;
  return all.front();
}

// EFS takes 64 characters; of two names that run together, "a-b" and "c", "a" and "b-c", each has its own.
std::string creation_token(const std::string& cluster, const std::string& name) {
  return "rubato-" + sha256_hex(fmt::format("{}:{}/{}", cluster.size(), cluster, name)).substr(0, kTokenDigits);
}

Task<FileSystem> wait_until_available(Client& client, FileSystem made) {
  World& world = client.world();
  const Instant deadline = world.clock.now() + kReadyMax;
  while (made.state != "available") {
    if (world.clock.now() >= deadline) {
      throw Error(ErrorCode::kUnavailable, fmt::format("the file system {} is still '{}'", made.id, made.state));
    }
    co_await Sleep(world.clock.loop(), world.clock.now() + kReadyPause);
    const std::vector<FileSystem> all = co_await aws::describe_file_systems(client);
    const auto now = std::ranges::find(all, made.id, &FileSystem::id);
    if (now != all.end()) made = *now;
  }
  co_return made;
}

class Targets {
 public:
  Targets(Client& client, const FileSystemsOrder& order, std::vector<std::string>& notes)
      : client_(client), order_(order), notes_(notes) {}

  // The address of the target in each zone.
  Task<std::map<std::string, std::string>> ensure(FileSystem of) {
    std::vector<MountTarget> there = co_await aws::describe_mount_targets(client_, of.id);
    for (const auto& [zone, subnet] : order_.subnets) {
      const bool has = std::ranges::any_of(
          there, [&](const MountTarget& one) { return one.zone == zone || one.subnet == subnet; });
      if (has) continue;
      MountTarget made = co_await make_target(of.id, zone, subnet);
      made_.insert(made.id);
      there.push_back(std::move(made));
    }
    co_await check_groups(of, there);
    co_return co_await wait_for(of, there);
  }

 private:
  Task<MountTarget> make_target(std::string file_system, std::string zone, std::string subnet) {
    std::vector<std::string> groups;
    if (!order_.security_group.empty()) groups.push_back(order_.security_group);
    std::optional<rest::CloudError> refused;
    try {
      co_return co_await aws::create_mount_target(client_, file_system, subnet, std::move(groups));
    } catch (const rest::CloudError& error) {
      if (error.code != ErrorCode::kConflict) throw;
      refused = error;
    }
    // Made meanwhile: by another `up`, or by a try of ours whose answer was lost.
    const std::vector<MountTarget> there = co_await aws::describe_mount_targets(client_, file_system);
    for (const MountTarget& one : there) {
      if (one.zone == zone || one.subnet == subnet) co_return one;
    }
    throw *refused;
  }

  // Of targets that others have made: whether their groups let our machines in is for their owner to say.
  Task<void> check_groups(const FileSystem& of, const std::vector<MountTarget>& there) {
    if (order_.security_group.empty()) co_return;
    for (const MountTarget& one : there) {
      if (made_.contains(one.id)) continue;
      const std::vector<std::string> groups = co_await aws::groups_of_mount_target(client_, one.id);
      if (groups.empty() || std::ranges::find(groups, order_.security_group) != groups.end()) continue;
      notes_.push_back(fmt::format(
          "note: the mount target {} of {} was there before: its security group must let NFS in: aws ec2 "
          "authorize-security-group-ingress --region {} --group-id {} --protocol tcp --port 2049 --source-group {}",
          one.id, of.id, client_.region(), groups.front(), order_.security_group));
    }
  }

  Task<std::map<std::string, std::string>> wait_for(FileSystem of, std::vector<MountTarget> there) {
    World& world = client_.world();
    const Instant deadline = world.clock.now() + kReadyMax;
    const auto comes = [](const MountTarget& one) { return one.state == "creating"; };
    while (std::ranges::any_of(there, comes)) {
      if (world.clock.now() >= deadline) {
        throw Error(ErrorCode::kUnavailable, fmt::format("the mount targets of {} are still being made", of.id), "",
                    "rubato up goes on waiting for them");
      }
      co_await Sleep(world.clock.loop(), world.clock.now() + kReadyPause);
      there = co_await aws::describe_mount_targets(client_, of.id);
    }
    std::map<std::string, std::string> out;
    for (const MountTarget& one : there) {
      if (one.state == "available" || one.state.empty()) out[one.zone] = one.address;
    }
    co_return out;
  }

  Client& client_;
  const FileSystemsOrder& order_;
  std::vector<std::string>& notes_;
  std::set<std::string> made_;
};

Task<FileSystem> ensure_one(Client& client, const Ec2Config& config, Wanted wanted, std::vector<std::string>& notes) {
  std::vector<FileSystem> all = co_await aws::describe_file_systems(client);
  std::optional<FileSystem> found = find_in(std::move(all), wanted, config);
  if (!found && wanted.name.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("{} has no file system '{}'", client.region(), wanted.id), wanted.where,
                "write one of that region, or name: NAME, and rubato makes it");
  }
  if (!found) {
    const aws::Tags tags{{std::string(aws::kClusterTag), config.cluster}, {"Name", wanted.name}};
    found = co_await aws::create_file_system(client, creation_token(config.cluster, wanted.name), tags);
    notes.push_back(fmt::format("the {} is made{}", title_of(wanted, *found),
                                wanted.remove ? "" : "; rubato down keeps it, with its data"));
  }
  co_return co_await wait_until_available(client, std::move(*found));
}

// Those of the file system that have one of the cluster's groups.
Task<void> remove_targets(Client& client, FileSystem of, const std::set<std::string>& groups) {
  std::set<std::string> ended;
  const std::vector<MountTarget> there = co_await aws::describe_mount_targets(client, of.id);
  for (const MountTarget& one : there) {
    const std::vector<std::string> has = co_await aws::groups_of_mount_target(client, one.id);
    if (std::ranges::none_of(has, [&](const std::string& id) { return groups.contains(id); })) continue;
    co_await aws::delete_mount_target(client, one.id);
    ended.insert(one.id);
  }
  World& world = client.world();
  const Instant deadline = world.clock.now() + kReadyMax;
  while (!ended.empty()) {
    const std::vector<MountTarget> left = co_await aws::describe_mount_targets(client, of.id);
    if (std::ranges::none_of(left, [&](const MountTarget& one) { return ended.contains(one.id); })) co_return;
    if (world.clock.now() >= deadline) {
      throw Error(ErrorCode::kUnavailable, fmt::format("the mount targets of {} do not go", of.id));
    }
    co_await Sleep(world.clock.loop(), world.clock.now() + kReadyPause);
  }
}

Task<void> remove_one(Client& client, const Ec2Config& config, Wanted wanted, FileSystem found,
                      const std::set<std::string>& groups, RemovedSurroundings& out) {
  co_await remove_targets(client, found, groups);
  const std::string title = title_of(wanted, found);
  if (!is_ours(found, config)) {
    out.kept.push_back(fmt::format("{}: it was there before the cluster", title));
  } else if (!wanted.remove) {
    out.kept.push_back(
        fmt::format("{}, with its data: it costs money; remove: true in provider.efs removes it with the cluster, or: "
                    "aws efs delete-file-system --region {} --file-system-id {}",
                    title, client.region(), found.id));
  } else {
    co_await aws::delete_file_system(client, found.id);
    out.removed.push_back(title);
  }
}

// In double quotes, where $HOME alone means something.
std::string shell_path(const std::string& path) {
  const auto in_home = strip_prefix(path, "~/");
  return in_home ? "$HOME/" + std::string(*in_home) : path;
}

}  // namespace

Task<std::vector<Ec2Surroundings::Mount>> ensure_file_systems(Client& client, FileSystemsOrder order,
                                                              std::vector<std::string>& notes) {
  std::vector<Ec2Surroundings::Mount> out;
  for (const Wanted& wanted : order.config.file_systems) {
    const FileSystem found = co_await ensure_one(client, order.config, wanted, notes);
    Targets targets(client, order, notes);
    Ec2Surroundings::Mount mount;
    mount.id = found.id;
    mount.path = wanted.mount;
    mount.addresses = co_await targets.ensure(found);
    out.push_back(std::move(mount));
  }
  co_return out;
}

Task<void> remove_file_systems(Client& client, const Ec2Config& config, std::set<std::string> groups,
                               RemovedSurroundings& out) {
  const std::vector<FileSystem> all = co_await aws::describe_file_systems(client);
  for (const Wanted& wanted : config.file_systems) {
    const std::optional<FileSystem> found = find_in(all, wanted, config);
    if (!found) continue;
    Task<void> removal = remove_one(client, config, wanted, *found, groups, out);
    co_await try_removal(title_of(wanted, *found), std::move(removal), out);
  }
}

std::string mount_script(const Ec2Surroundings::Mount& mount, const std::string& zone) {
  auto at = mount.addresses.find(zone);
  if (at == mount.addresses.end()) at = mount.addresses.begin();
  const std::string address = at == mount.addresses.end() ? "" : at->second;
  const std::string path = shell_path(mount.path);
  // The address and the id are a server's words.
  std::string out = fmt::format("# EFS at {}\n", mount.path);
  const std::string server = shell_quote(address), id = shell_quote(mount.id);
  out += fmt::format("efs_folder=\"{}\"; efs_server={}; efs_id={}\n", path, server, id);
  out += R"sh(grep -q " $efs_folder nfs4 " /proc/mounts && exit 0
if [ "$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi
mkdir -p "$efs_folder" 2>/dev/null || $as_root mkdir -p "$efs_folder"
command -v mount.nfs4 >/dev/null 2>&1 || [ -x /sbin/mount.nfs4 ] || {
  $as_root apt-get install -y -q nfs-common ||
    { $as_root apt-get update -q && $as_root apt-get install -y -q nfs-common; } ||
    $as_root yum install -y -q nfs-utils
} >&2
)sh";
  out += fmt::format("$as_root mount -t nfs4 -o {} \"$efs_server:/\" \"$efs_folder\" || {{\n", kNfsOptions);
  out += R"sh(  echo "the file system $efs_id cannot be mounted from $efs_server" >&2
  echo "does the security group of its mount target let NFS (port 2049) in?" >&2
  exit 1
}
[ -w "$efs_folder" ] || $as_root chmod 1777 "$efs_folder"
)sh";
  return out;
}

std::string mount_option(const Ec2Surroundings::Mount& mount) {
  const std::string path = shell_path(mount.path);
  return fmt::format("-v \"{0}:{0}\"", path);
}

}  // namespace rubato::clouds
