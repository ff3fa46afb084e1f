#include "deploy/cluster_tools.h"

#include "core/error.h"
#include "os/certificates.h"
#include "os/daemons.h"
#include "os/file_lock.h"
#include "os/files.h"
#include "os/foreground.h"
#include "os/machine.h"

namespace rubato::cli {
namespace {

constexpr uint32_t kOwnerOnly = 0700;
constexpr Duration kScriptMax = 60s;

struct LockedFolder final : FolderHold {
  explicit LockedFolder(os::FileLock taken) : lock(std::move(taken)) {}
  os::FileLock lock;
};

class RealClusterTools final : public ClusterTools {
 public:
  explicit RealClusterTools(Environment env) : env_(std::move(env)) {}

  Files& files() override { return files_; }
  Daemons& daemons() override { return daemons_; }
  MachineFacts machine() override { return os::read_machine_facts(env_); }
  std::string program() override { return os::own_program(); }

  void make_identity(const ClusterPlace& place, const std::string& listen) override {
    make_folder(place);
    os::make_cluster_ca(place.folder);
    std::vector<std::string> names = {"127.0.0.1", "::1", "localhost"};
    if (!listen.empty()) names.push_back(listen);
    os::issue_certificate(place.folder, "head", names, place.folder + "/head.pem", place.folder + "/head.key");
    os::make_token(place.token_file());
  }

  bool run_script(const std::string& script, const std::string& input) override {
    try {
      const os::Captured done = os::run_captured({"sh", "-c", script}, input, kScriptMax);
      return done.status.signal == 0 && done.status.code == 0;
    } catch (const Error&) {
      return false;  // no shell: then there is no systemd either
    }
  }

  std::unique_ptr<FolderHold> try_hold(const ClusterPlace& place) override {
    make_folder(place);
    auto lock = os::FileLock::try_take(place.folder + "/up.lock");
    return lock ? std::make_unique<LockedFolder>(std::move(*lock)) : nullptr;
  }

 private:
  void make_folder(const ClusterPlace& place) {
    files_.make_folders(place.folder);
    files_.set_mode(place.folder, kOwnerOnly);
  }

  const Environment env_;
  os::RealFiles files_;
  os::RealDaemons daemons_;
};

}  // namespace

std::unique_ptr<ClusterTools> real_cluster_tools(const Environment& env) {
  return std::make_unique<RealClusterTools>(env);
}

}  // namespace rubato::cli
