// For tests: an sshd of our own on a loopback port, with keys and a home folder of its own, and a real World.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/process_fixture.h"
#include "provider/run_here.h"
#include "provider/ssh_runner.h"

namespace rubato::provider {

// What a call ended with: a value, or the Error.
template <class T>
struct Outcome {
  std::optional<T> value;
  std::optional<Error> error;
};

template <class T>
Task<int> settle_into(Task<T> task, Outcome<T>& outcome) {
  try {
    outcome.value = co_await std::move(task);
  } catch (const Error& error) {
    outcome.error = error;
  }
  co_return 0;
}

inline Task<bool> done(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

class RealWorldTest : public os::ProcessFixture {
 protected:
  template <class T>
  Outcome<T> settle(Task<T> task) {
    Outcome<T> outcome;
    Task<int> settled = settle_into(std::move(task), outcome);
    runtime.run(std::move(settled));
    return outcome;
  }
  // Throws what the call throws.
  template <class T>
  T await(Task<T> task) {
    Outcome<T> outcome = settle(std::move(task));
    if (outcome.error) {
      ADD_FAILURE() << render(*outcome.error);
      throw *outcome.error;
    }
    return std::move(*outcome.value);
  }
  void finish_call(Task<void> task) { (void)await(done(std::move(task))); }
  std::optional<Error> error_of(Task<void> task) { return settle(done(std::move(task))).error; }

  RunnerSettings settings() {
    RunnerSettings settings;
    settings.env = os::own_environment();
    settings.scratch = folder / "scratch";
    return settings;
  }
  // The environment with a PATH that has a few usual programs, less some.
  RunnerSettings settings_without(const std::vector<std::string>& programs) {
    RunnerSettings result = settings();
    const std::string bin = path_without(programs);
    std::erase_if(result.env, [](const std::string& entry) { return entry.starts_with("PATH="); });
    result.env.push_back("PATH=" + bin);
    return result;
  }
  std::string path_without(const std::vector<std::string>& programs) {
    const std::string bin = fmt::format("{}/bin-{}", folder.path().string(), ++paths_);
    std::filesystem::create_directories(bin);
    for (const char* name :
         {"sh",   "bash",  "cat",   "tar",       "gzip",  "zstd",   "find",   "xargs", "rm", "rmdir", "mkdir", "mv",
          "ssh",  "rsync", "chmod", "sha256sum", "uname", "mktemp", "ps",     "kill",  "ln", "ls",    "test",  "sleep",
          "head", "tr",    "tail",  "env",       "cut",   "sed",    "setsid", "touch", "id", "df"}) {
      if (std::ranges::count(programs, name) != 0) continue;
      const std::string real = fmt::format("/usr/bin/{}", name);
      if (std::filesystem::exists(real)) std::filesystem::create_symlink(real, bin + "/" + name);
    }
    return bin;
  }

  os::RealNetwork network{runtime};
  os::RealFiles files;
  os::RealConsole console;
  Random random{static_cast<uint64_t>(::getpid())};
  const MachineFacts machine;
  World world{runtime, network, processes, files, console, random, machine};

 private:
  int paths_ = 0;
};

class SshTest : public RealWorldTest {
 protected:
  void SetUp() override {
    if (::access("/usr/sbin/sshd", X_OK) != 0) {
      GTEST_SKIP() << "sshd is not installed: tools/install-packages.sh test";
    }
    if (::geteuid() == 0) std::filesystem::create_directories("/run/sshd");  // sshd's empty folder
    std::filesystem::create_directories(home);
    make_key("host_key");
    make_key("key");
    std::filesystem::copy(folder / "key.pub", folder / "authorized");
    start_sshd("");
  }
  void TearDown() override {
    if (sshd_) finish_call(runner().disconnect());
    sshd_.reset();
  }

  void make_key(const std::string& name) {
    std::filesystem::remove(folder / name);
    const os::Finished made = run(spec_of({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name}));
    ASSERT_TRUE(made.status.ok()) << made.err;
  }

  // `path`: the PATH of sessions; empty: the usual one.
  void start_sshd(const std::string& path) {
    sshd_.reset();
    std::filesystem::remove(folder / "sshd.log");
    port = port == 0 ? network.lease_port(0)->port() : port;
    const std::string config = folder.write(
        "sshd_config",
        fmt::format("Port {}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n"
                    "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                    "AllowStreamLocalForwarding yes\nSetEnv HOME={}{}\n",
                    port, folder / "host_key", folder / "authorized", home, path.empty() ? "" : " PATH=" + path));
    SpawnSpec spec = spec_of({"/usr/sbin/sshd", "-D", "-e", "-f", config});
    spec.out.kind = OutputTarget::Kind::kNull;
    spec.err.kind = OutputTarget::Kind::kFile;
    spec.err.path = folder / "sshd.log";
    sshd_ = processes.spawn(spec);
    ASSERT_TRUE(turn_until([&] { return answers() || sshd_->status(); }));
    ASSERT_FALSE(sshd_->status()) << os::read_text(folder / "sshd.log");
  }
  void stop_sshd() { sshd_.reset(); }

  bool answers() { return os::read_text(folder / "sshd.log").find(fmt::format("port {}", port)) != std::string::npos; }

  SshTarget target() {
    SshTarget target;
    target.host = "127.0.0.1";
    target.port = port;
    target.key_file = folder / "key";
    target.known_hosts = folder / "known_hosts";
    target.control_folder = folder / "ssh";
    files.make_folders(target.control_folder);
    files.set_mode(target.control_folder, 0700);
    return target;
  }
  SshRunner runner() { return SshRunner(world, settings(), target()); }

  const std::string home = folder / "home";
  uint16_t port = 0;
  std::unique_ptr<Process> sshd_;
};

inline Command script(std::string text) {
  Command command;
  command.script = std::move(text);
  return command;
}

}  // namespace rubato::provider
