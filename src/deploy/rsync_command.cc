// `rubato rsync-up` and `rsync-down`: files between this machine and the cluster's.
#include <fmt/format.h>

#include <filesystem>

#include "client/cluster_target.h"
#include "client/remote.h"
#include "client/session.h"
#include "core/text.h"
#include "deploy/machine_commands.h"
#include "os/files.h"
#include "os/foreground.h"
#include "provider/pod_address.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
using provider::SshTarget;
using provider::SyncOptions;

struct Transfer {
  std::string source, target;
  SyncOptions options;
};

// A path of this machine as typed; a slash at its end keeps its meaning.
std::string absolute_here(const std::string& path) {
  std::string out = std::filesystem::absolute(path).lexically_normal().string();
  if (path.ends_with('/') && !out.ends_with('/')) out += '/';
  return out;
}

class Syncer {
 public:
  Syncer(const ParsedCommand& parsed, const Shell& shell, bool up)
      : parsed_(parsed), shell_(shell), up_(up), words_(parsed.positionals) {
    target_ = find_cluster(parsed, shell, take_cluster_word(parsed, words_));
  }

  int run() {
    const std::vector<Transfer> transfers = read_transfers();
    require_up(target_, false);
    if (transfers.empty()) {
      shell_.err("the cluster file has no file_mounts: nothing to copy\n");
      return 0;
    }
    if (target_.here()) return copy_here(transfers);
    const std::unique_ptr<Remote> remote = shell_.remote();
    for (const Place& place : places(*remote)) {
      for (Transfer one : transfers) {
        provider::SyncSent sent;
        LiveLine line(shell_);
        one.options.on_sent = [&](const provider::SyncSent& now) {
          sent = now;
          line.show(fmt::format("{}: {} -> {}, {}", place.name, one.source, one.target, sent_text(now)));
        };
        up_ ? put(*remote, place, one) : fetch(*remote, place, one);
        line.clear();
        shell_.err(fmt::format("{}: {} -> {} ({})\n", place.name, one.source, one.target, sent_text(sent)));
      }
    }
    return 0;
  }

 private:
  std::vector<Transfer> read_transfers() const {
    if (words_.size() == 1) {
      throw Error(ErrorCode::kUsage, fmt::format("where should '{}' go?", words_.front()), "",
                  fmt::format("write rubato {} CLUSTER SOURCE TARGET", up_ ? "rsync-up" : "rsync-down"));
    }
    if (words_.size() == 2) {
      Transfer one{words_[0], words_[1], {}};
      (up_ ? one.source : one.target) = absolute_here(up_ ? one.source : one.target);
      one.options.remove_others = parsed_.has("delete");
      return {one};
    }
    std::vector<Transfer> out;
    if (!target_.text) return out;
    const FilesConfig& files = target_.text->file.files;
    for (const auto& [there, here] : files.mounts) {
      const std::string mine = absolute_here(expand_home(here, shell_.env));
      Transfer one = up_ ? Transfer{mine, there, {}} : Transfer{there, mine, {}};
      // Nobody expects a download to delete what is only here.
      one.options.remove_others = up_ || parsed_.has("delete");
      one.options.exclude = files.exclude;
      one.options.ignore_files = files.ignore_files;
      out.push_back(std::move(one));
    }
    return out;
  }

  // Where files go to, or come from.
  struct Place {
    std::string name;  // for people
    SshTarget way;
    std::optional<provider::ContainerSpec> container;
  };

  std::vector<Place> places(Remote& remote) {
    os::RealFiles files;
    Place head{"head", target_of(files, target_.place, *target_.remote), container_asked(parsed_, target_)};
    remote.connect(head.way);
    std::vector<Place> out = {std::move(head)};
    if (!parsed_.has("all-nodes")) return out;
    const json reply = get(*shell_.open_api(target_.place), "nodes");
    for (const json& node : list_in(reply, "nodes")) {
      if (node.value("head", false) || raw_in(node, "address").empty()) continue;
      Place one{raw_in(node, "id"), worker_way(raw_in(node, "address"), raw_in(node, "id")),
                container_asked(parsed_, target_, raw_in(node, "type"))};
      out.push_back(std::move(one));
    }
    return out;
  }

  // Straight to a worker when it can be reached so, else by way of the head's machine.
  SshTarget worker_way(const std::string& address, const std::string& node) {
    os::RealFiles files;
    if (provider::is_pod(target_.remote->host.host)) {
      RemoteHead worker = *target_.remote;
      worker.host.host = provider::sibling_pod(worker.host.host, target_.place.name, node);
      return target_of(files, target_.place, worker);
    }
    HostAddress host;
    host.host = address;
    for (const HostAddress& one : target_.text->file.provider.workers) {
      if (one.host == address) host = one;
    }
    SshTarget way = worker_target(files, target_.place, target_.text->file, host, shell_.env);
    try {
      shell_.remote()->connect(way);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable) throw;
      way.proxy_command.clear();
      way.proxy_jump = to_string(target_.remote->host);
    }
    return way;
  }

  static void put(Remote& remote, const Place& place, const Transfer& one) {
    if (!place.container) return remote.upload(place.way, one.source, one.target, one.options);
    remote.upload_inside(place.way, *place.container, one.source, one.target, one.options);
  }

  static void fetch(Remote& remote, const Place& place, const Transfer& one) {
    if (!place.container) return remote.download(place.way, one.source, one.target, one.options);
    remote.download_inside(place.way, *place.container, one.source, one.target, one.options);
  }

  static provider::SyncSent size_of(const std::string& path) {
    provider::SyncSent out;
    std::error_code error;
    const auto add = [&](const std::filesystem::path& file) {
      const uint64_t bytes = std::filesystem::file_size(file, error);
      if (error) return;  // a link to nowhere, or gone meanwhile
      ++out.files;
      out.bytes += bytes;
    };
    if (!std::filesystem::is_directory(path, error)) {
      add(path);
      return out;
    }
    std::filesystem::recursive_directory_iterator it(path, error), end;
    for (; !error && it != end; it.increment(error)) {
      if (it->is_regular_file(error)) add(it->path());
    }
    return out;
  }

  // A cluster of this machine: the same with cp, for there is nobody to ask.
  int copy_here(const std::vector<Transfer>& transfers) {
    const std::unique_ptr<Remote> remote = shell_.remote();
    for (const Transfer& one : transfers) {
      const std::string source = absolute_here(expand_home(one.source, shell_.env));
      const std::string target = absolute_here(expand_home(one.target, shell_.env));
      std::error_code error;
      const bool folder = std::filesystem::is_directory(source, error);
      const std::string parent =
          folder || target.ends_with('/') ? target : std::filesystem::path(target).parent_path().string();
      std::filesystem::create_directories(parent, error);
      const int code = remote->in_front_here({"cp", "-a", "--", folder ? source + "/." : source, target});
      if (code != 0) return code;
      shell_.err(fmt::format("this machine: {} -> {} ({})\n", source, target, sent_text(size_of(source))));
    }
    return 0;
  }

  const ParsedCommand& parsed_;
  const Shell& shell_;
  const bool up_;
  std::vector<std::string> words_;
  ClusterTarget target_;
};

}  // namespace

int rsync_up_command(const ParsedCommand& parsed, const Shell& shell) { return Syncer(parsed, shell, true).run(); }
int rsync_down_command(const ParsedCommand& parsed, const Shell& shell) { return Syncer(parsed, shell, false).run(); }

}  // namespace rubato::cli
